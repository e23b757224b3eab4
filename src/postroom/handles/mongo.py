"""PyMongo's `ClientSession`, sync and async; and, where a service said that it has no transactions, its `Database`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, DuplicateMessage, NotInTransaction, SchemaMismatch, StoreError
from postroom.message import Message
from postroom.stores.documents import SEQ, documents, reservation

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient, MongoClient
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.client_session import ClientSession
    from pymongo.database import Database

DUPLICATE_KEY, ILLEGAL_OPERATION = 11000, 20


@dataclass(slots=True)
class MongoSessionHandle:
    """A session of PyMongo."""

    session: ClientSession

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was started on it."""
        if not self.session.in_transaction:
            raise NotInTransaction(_outside("with session.start_transaction():"))

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages: one round trip for their places, one for themselves."""
        write(_database(self.session.client, tables), self.session, messages, tables)


@dataclass(slots=True)
class AsyncMongoSessionHandle:
    """An async session of PyMongo."""

    session: AsyncClientSession

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was started on it."""
        if not self.session.in_transaction:
            raise NotInTransaction(_outside("async with await session.start_transaction():"))

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages: one round trip for their places, one for themselves."""
        self.check()
        await write_async(_database(self.session.client, tables), self.session, messages, tables)


@dataclass(slots=True)
class MongoDatabaseHandle:
    """A database, and no transaction: each message is there as soon as it is written."""

    database: Database[Any]
    stands_alone = True

    def check(self) -> None:
        """Raise NotInTransaction: a service must say that it means it."""
        raise NotInTransaction(_alone("Database"))

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        write(_named(self.database, tables), None, messages, tables)


@dataclass(slots=True)
class AsyncMongoDatabaseHandle:
    """The same, awaited."""

    database: AsyncDatabase[Any]
    stands_alone = True

    def check(self) -> None:
        """Raise NotInTransaction: a service must say that it means it."""
        raise NotInTransaction(_alone("AsyncDatabase"))

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        await write_async(_named(self.database, tables), None, messages, tables)


def write(database: Any, session: Any, messages: Sequence[Message], tables: TableNames) -> None:
    """Reserve places outside the transaction, and write in it."""
    if messages:
        with translated(messages):
            counter = _sure(database)[tables.name("counter")].find_one_and_update(*_reserve(messages), **_after())
            places = _reserved(counter, database.name, tables)
            database[tables.name()].insert_many(documents(messages, places), session=session)


async def write_async(database: Any, session: Any, messages: Sequence[Message], tables: TableNames) -> None:
    """The same, awaited."""
    if messages:
        with translated(messages):
            counter = await _sure(database)[tables.name("counter")].find_one_and_update(*_reserve(messages), **_after())
            places = _reserved(counter, database.name, tables)
            await database[tables.name()].insert_many(documents(messages, places), session=session)


def _reserve(messages: Sequence[Message]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    return {"_id": SEQ}, reservation(len(messages))


def _after() -> dict[str, Any]:
    return {"return_document": True}  # as it is afterwards; ReturnDocument.AFTER


def _reserved(counter: dict[str, Any] | None, database: str, tables: TableNames) -> dict[str, Any]:
    if counter is None:
        raise SchemaMismatch(
            f"The collections of Postroom are not in the database {database}: run postroom init --store URL with its "
            "URL, or give Outbox the tables=TableNames(...) that it was run with.",
            table=tables.name(),
        )
    return counter


def _sure(database: Any) -> Any:
    """The same database, written to a majority: places that were forgotten would be given twice (R1)."""
    from bson.codec_options import DEFAULT_CODEC_OPTIONS
    from pymongo import WriteConcern

    return database.with_options(codec_options=DEFAULT_CODEC_OPTIONS, write_concern=WriteConcern("majority"))


def database_of(handle: Any, tables: TableNames) -> Any:
    """Where one of these handles writes to."""
    alone = getattr(handle, "stands_alone", False)
    return _named(handle.database, tables) if alone else _database(handle.session.client, tables)


def _database(client: MongoClient[Any] | AsyncMongoClient[Any], tables: TableNames) -> Any:
    """The one that the tables' schema names, or else the client's URL."""
    from pymongo.errors import ConfigurationError

    if tables.schema is not None:
        return client[tables.schema]
    try:
        return client.get_default_database()
    except ConfigurationError:
        raise ConfigError(
            "The client of this session has no database of its own: name it in its URL, as in mongodb://host/shop, or give "
            'Outbox tables=TableNames(schema="shop").'
        ) from None


def _named(database: Any, tables: TableNames) -> Any:
    return database if tables.schema is None else database.client[tables.schema]


class translated:  # noqa: N801 - reads as a sentence: `with translated(messages):`
    """Raises DuplicateMessage, or StoreError for a server without transactions; lets other errors pass untouched."""

    __slots__ = ("_messages",)

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        details = getattr(exc, "details", None)
        if not isinstance(details, dict):
            return
        error = (details.get("writeErrors") or [details])[0]
        if error.get("code") == DUPLICATE_KEY and (ours := _duplicate(error, self._messages)):
            raise ours from exc
        if error.get("code") == ILLEGAL_OPERATION and "replica set" in str(error.get("errmsg")):
            raise StoreError(
                "This MongoDB is a standalone server, which has no transactions: start it with --replSet rs0 and run "
                "rs.initiate() once (one node is enough)."
            ) from exc


def _duplicate(error: dict[str, Any], messages: Sequence[Message]) -> DuplicateMessage | None:
    columns = {"_id": "id", "id": "id", "idempotency_key": "idempotency_key"}
    field = next(iter(error.get("keyPattern", {})), "")
    if field not in columns:
        return None
    name, value = columns[field].replace("_", " "), error.get("keyValue", {}).get(field)
    known = {str(message.id) for message in messages} | {message.idempotency_key for message in messages}
    if value not in known:
        return None  # another collection's, by a rule of the user's own
    return DuplicateMessage(
        f"A message with the {name} {value} is already in the outbox: abort the transaction, and treat it as written or give "
        f"the new one another {name}.",
        **{columns[field]: value},
    )


def _outside(remedy: str) -> str:
    return (
        "The PyMongo session is not in a transaction, so the message would not commit with your data: put inside "
        f"`{remedy}`, and pass session=session with your own writes."
    )


def _alone(kind: str) -> str:
    return (
        f"A {kind} of PyMongo is not in a transaction, so the message would not commit with your data: give a session that is "
        "in one; or, on a server that has none, write your data first, and put with Outbox(without_transactions=True)."
    )
