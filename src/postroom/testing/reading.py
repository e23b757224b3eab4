"""Reading the outbox with the handle that a test holds: also what is not committed yet, by whoever wrote it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from postroom.config.tables import TableNames
from postroom.errors import UnknownHandle
from postroom.handles import handle_for
from postroom.testing.reading_sql import (
    Found,
    Put,
    by_async_connection,
    by_async_cursor,
    by_async_session,
    by_asyncpg,
    by_cursor,
    by_django,
    by_session,
    by_sqlalchemy,
    in_tuples,
)

__all__ = ["Found", "Put", "read"]


def read(thing: Any, tables: TableNames) -> Found:
    """What is in the outbox, oldest first, as this connection or session sees it; to be awaited where its driver is.

    Whatever transaction is open on it stays open, and none is left behind where there was none."""
    handle = handle_for(thing)
    kind = type(handle).__name__
    if kind not in _READERS:
        raise UnknownHandle(
            f"The outbox cannot be read with a {type(thing).__name__}: give the URL of the store instead."
        )
    return _READERS[kind](handle, tables)


def _by_mongo(handle: Any, tables: TableNames) -> Found:
    return [_document(found) for found in _documents(handle, tables)]


async def _by_async_mongo(handle: Any, tables: TableNames) -> Sequence[Put]:
    return [_document(found) async for found in _documents(handle, tables)]


def _documents(handle: Any, tables: TableNames) -> Any:
    from postroom.handles.mongo import database_of

    session = getattr(handle, "session", None)
    return database_of(handle, tables)[tables.name()].find({}, session=session, sort=[("seq", 1)])


def _document(found: dict[str, Any]) -> Put:
    from postroom.stores.mongo.rows import message_in

    return Put(message_in(found), found.get("outcome") is None)


_READERS: Mapping[str, Callable[[Any, TableNames], Found]] = {
    "SqliteHandle": by_cursor("sqlite"),
    "PsycopgHandle": by_cursor("postgres", in_tuples),
    "Psycopg2Handle": by_cursor("postgres"),
    "PyMySQLHandle": by_cursor("mysql"),
    "MySQLdbHandle": by_cursor("mysql"),
    "DjangoHandle": by_django,
    "ConnectionHandle": by_sqlalchemy,
    "SessionHandle": by_session,
    "AiosqliteHandle": by_async_cursor("sqlite"),
    "AsyncPsycopgHandle": by_async_cursor("postgres", in_tuples),
    "AsyncmyHandle": by_async_cursor("mysql"),
    "AsyncpgHandle": by_asyncpg,
    "AsyncConnectionHandle": by_async_connection,
    "AsyncSessionHandle": by_async_session,
    "MongoSessionHandle": _by_mongo,
    "MongoDatabaseHandle": _by_mongo,
    "AsyncMongoSessionHandle": _by_async_mongo,
    "AsyncMongoDatabaseHandle": _by_async_mongo,
}
"""By the class of the handle that `put` writes with."""
