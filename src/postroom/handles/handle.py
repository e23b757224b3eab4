"""What `put` needs of a database handle, what it says of a thing that is none, and how it writes all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain, islice
from types import ModuleType
from typing import Any, Protocol, TypeAlias, TypeVar

from postroom.config.tables import TableNames
from postroom.message import Message

Item = TypeVar("Item")


class SyncHandle(Protocol):
    """A handle of a driver that blocks."""

    def check(self) -> None:
        """Raise NotInTransaction, with the remedy for this very handle, where a write would commit by itself."""

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, in this order, in the transaction that is open. Commits nothing, rolls nothing back."""


class AsyncHandle(Protocol):
    """A handle of a driver that is awaited."""

    def check(self) -> None:
        """Raise NotInTransaction, with the remedy for this very handle, where a write would commit by itself."""

    def write(self, messages: Sequence[Message], tables: TableNames) -> Coroutine[Any, Any, None]:
        """The same, when awaited; and checks again then, since the transaction may have ended meanwhile."""


Handle: TypeAlias = SyncHandle | AsyncHandle


# The things people hold, by shape and not by class: a union of classes would turn into Any for a type checker in any
# project that has not installed all of their drivers, and with it the answer of `put`.


class _Commits(Protocol):
    def commit(self) -> None: ...


class _CommitsAsync(Protocol):
    def commit(self) -> Awaitable[None]: ...


class _Asyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...

    def execute(self, query: str, *args: Any) -> Awaitable[Any]: ...


class _Mongo(Protocol):
    def commit_transaction(self) -> None: ...


class _MongoAsync(Protocol):
    def commit_transaction(self) -> Awaitable[None]: ...


class _MongoDatabase(Protocol):
    def list_collection_names(self) -> Sequence[str]: ...


class _MongoDatabaseAsync(Protocol):
    def list_collection_names(self) -> Awaitable[Sequence[str]]: ...


class _Sync(Protocol):
    def postroom_handle(self) -> SyncHandle: ...


class _Async(Protocol):
    def postroom_handle(self) -> AsyncHandle: ...


Sync: TypeAlias = _Commits | _Mongo | _MongoDatabase | _Sync
"""sqlite3, psycopg, psycopg2, SQLAlchemy, Django, PyMongo, or a thing that brings its own handle."""
Async: TypeAlias = _CommitsAsync | _Asyncpg | _MongoAsync | _MongoDatabaseAsync | _Async
"""aiosqlite, psycopg's AsyncConnection, asyncpg, SQLAlchemy's and PyMongo's async ones, or a thing that brings its own."""


# ── what to say of a thing that is no handle: most often it is one step away from one ──

ACCEPTED = (
    "a connection of sqlite3, aiosqlite, psycopg, psycopg2, asyncpg, PyMySQL, mysqlclient, asyncmy or Django, "
    "a Session or Connection of SQLAlchemy, or a session of PyMongo, sync or async"
)

_CONNECTION = "give the connection, not its cursor"
_POOL = "give a connection taken from it, not the pool"
_ENGINE = "give a Session or Connection that is in a transaction, as in `with engine.begin() as connection:`"
_SESSION = "call it and give the Session that is in a transaction, as in `with Session.begin() as session:`"
_BLOCK = "give the connection or session that the transaction is on, not the transaction"
_MONGO = "give a session that is in a transaction, as in `with client.start_session() as s, s.start_transaction():`"

HINTS = {
    ("sqlite3", "Cursor"): _CONNECTION,
    ("aiosqlite.cursor", "Cursor"): _CONNECTION,
    ("psycopg._cursor_base", "BaseCursor"): _CONNECTION,
    ("psycopg2.extensions", "cursor"): _CONNECTION,
    ("asyncpg.cursor", "Cursor"): _CONNECTION,
    ("pymysql.cursors", "Cursor"): _CONNECTION,
    ("MySQLdb.cursors", "BaseCursor"): _CONNECTION,
    ("asyncmy.cursors", "Cursor"): _CONNECTION,
    ("django.db.backends.utils", "CursorWrapper"): _CONNECTION,
    ("psycopg_pool.base", "BasePool"): _POOL,
    ("psycopg2.pool", "AbstractConnectionPool"): _POOL,
    ("asyncpg.pool", "Pool"): _POOL,
    ("asyncmy.pool", "Pool"): _POOL,
    ("sqlalchemy.pool.base", "Pool"): _POOL,
    ("sqlalchemy.engine.base", "Engine"): _ENGINE,
    ("sqlalchemy.ext.asyncio.engine", "AsyncEngine"): _ENGINE,
    ("sqlalchemy.orm.session", "sessionmaker"): _SESSION,
    ("sqlalchemy.ext.asyncio.session", "async_sessionmaker"): _SESSION,
    ("sqlalchemy.orm.session", "SessionTransaction"): _BLOCK,
    ("sqlalchemy.ext.asyncio.session", "AsyncSessionTransaction"): _BLOCK,
    ("sqlalchemy.engine.base", "Transaction"): _BLOCK,
    ("sqlalchemy.ext.asyncio.engine", "AsyncTransaction"): _BLOCK,
    ("psycopg.transaction", "BaseTransaction"): _BLOCK,
    ("asyncpg.transaction", "Transaction"): _BLOCK,
    ("pymongo.synchronous.mongo_client", "MongoClient"): _MONGO,
    ("pymongo.asynchronous.mongo_client", "AsyncMongoClient"): _MONGO,
    ("pymongo.synchronous.collection", "Collection"): _MONGO,
    ("pymongo.asynchronous.collection", "AsyncCollection"): _MONGO,
    ("django.db.transaction", "Atomic"): "give django.db.connection, not atomic()",
    ("django.db.utils", "ConnectionHandler"): 'give one of them, like connections["default"]',
}
"""Class to remedy; subclasses are found too."""


def hint(thing: object) -> str:
    """A sentence that names the thing, and says what to give instead."""
    return f"put cannot write with {_named(thing)}: {_remedy(thing)}."


def _named(thing: object) -> str:
    match thing:
        case None:
            return "None"
        case str() | bytes():
            return "a text"  # and not which: a URL may hold a password
        case ModuleType():
            return f"the module {thing.__name__}"
    kind = type(thing)
    return f"a {kind.__module__}.{kind.__qualname__}"


def _remedy(thing: object) -> str:
    match thing:
        case Message():
            return "the handle comes first, then the message"
        case str() | bytes():
            return "connect to the database yourself, and give the connection that your data is written with"
        case ModuleType(__name__="django.db.transaction" | "django.db"):
            return "give django.db.connection"
        case type():
            return f"give an object of it. Accepted is {ACCEPTED}"
    for each in type(thing).__mro__:
        if found := HINTS.get((each.__module__, each.__qualname__)):
            return found
    return f"give {ACCEPTED}"


# ── all of a `put_many` or nothing: where several statements or rows are written, a savepoint is around them ──
#
# On PostgreSQL any error fails the whole transaction, and MongoDB aborts it, so neither needs this.

SAVE = "SAVEPOINT postroom_put"
UNDO = "ROLLBACK TO SAVEPOINT postroom_put"
RELEASE = "RELEASE SAVEPOINT postroom_put"


@contextmanager
def whole(run: Callable[[str], Any], *, several: bool) -> Iterator[None]:
    """Undo what was written inside when an error comes out of it. With a single write the database does that itself."""
    if not several:
        yield
        return
    run(SAVE)
    try:
        yield
    except Exception:
        # After some errors the database has rolled back everything itself: then there is no savepoint to go back to.
        with suppress(Exception):
            run(UNDO)
            run(RELEASE)
        raise
    run(RELEASE)


@asynccontextmanager
async def whole_async(run: Callable[[str], Awaitable[Any]], *, several: bool) -> AsyncIterator[None]:
    """The same, awaited."""
    if not several:
        yield
        return
    await run(SAVE)
    try:
        yield
    except Exception:
        with suppress(Exception):
            await run(UNDO)
            await run(RELEASE)
        raise
    await run(RELEASE)


def are_several(items: Iterable[Item]) -> tuple[bool, Iterable[Item]]:
    """Whether there is more than one; and all of them. They may be large: no more than two are held at once."""
    rest = iter(items)
    first = list(islice(rest, 2))
    return len(first) > 1, chain(first, rest)
