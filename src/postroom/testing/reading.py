"""Reading the outbox with the handle that a test holds: also what is not committed yet, by whoever wrote it there."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction, UnknownHandle
from postroom.handles import Handle, handle_for
from postroom.handles.errors import translated
from postroom.message import Message
from postroom.stores.rows import message_of
from postroom.stores.sql.files import backquoted, rename, statements
from postroom.stores.sql.insert import Dialect
from postroom.stores.sql.times import moment


@dataclass(frozen=True, slots=True)
class Put:
    """A message in the outbox."""

    message: Message
    is_open: bool
    """It still has to be sent; else a relay, or a person, is done with it."""


Found: TypeAlias = Sequence[Put] | Awaitable[Sequence[Put]]


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


def _sql(dialect: Dialect, tables: TableNames) -> str:
    sql = rename(statements("postroom.testing", "sql/put.sql")[dialect], tables)
    return backquoted(sql) if dialect == "mysql" else sql


def _all_of(rows: Iterable[Any]) -> Sequence[Put]:
    # Of whatever kind a row is, there is one thing in it.
    texts = (next(iter(row.values() if isinstance(row, Mapping) else row)) for row in rows)
    return [_put(*json.loads(text if text[0] == "[" else bytes.fromhex(text))) for text in texts]


def _put(is_open: Any, *columns: Any) -> Put:
    *texts, body, content_type, headers, correlation, causation, trace, once, time, expires_at = columns
    about = content_type, headers, correlation, causation, trace, once, moment(time), moment(expires_at)
    return Put(message_of(*(*texts, None if body is None else bytes.fromhex(body), *about)), bool(is_open))


def _is_idle(handle: Handle) -> bool:
    """Is it in no transaction? Then reading may begin one, which has to end again."""
    try:
        handle.check()
    except NotInTransaction:
        return True
    return False


def _in_tuples() -> dict[str, Any]:
    """How to ask psycopg for plain rows, whatever the connection makes of them."""
    from psycopg.rows import tuple_row

    return {"row_factory": tuple_row}


# ── drivers that block ──


def _by_cursor(dialect: Dialect, options: Callable[[], dict[str, Any]] = dict) -> Callable[[Any, TableNames], Found]:
    def look(handle: Any, tables: TableNames) -> Sequence[Put]:
        connection, idle = handle.connection, _is_idle(handle)
        try:
            with translated((), tables), closing(connection.cursor(**options())) as cursor:
                cursor.execute(_sql(dialect, tables))
                return _all_of(cursor.fetchall())
        finally:
            if idle and dialect != "sqlite":
                connection.rollback()

    return look


def _by_django(handle: Any, tables: TableNames) -> Found:
    from postroom.handles.django import DIALECTS

    with translated((), tables), handle.connection.cursor() as cursor:
        cursor.execute(_sql(DIALECTS[handle.connection.vendor], tables))
        return _all_of(cursor.fetchall())


def _by_sqlalchemy(handle: Any, tables: TableNames) -> Found:
    return _on_connection(handle.connection, tables)


def _on_connection(connection: Any, tables: TableNames) -> Sequence[Put]:
    from postroom.handles.sqlalchemy import DIALECTS

    idle = not connection.in_transaction()
    try:
        with translated((), tables):
            return _all_of(connection.exec_driver_sql(_sql(DIALECTS[connection.dialect.name], tables)).fetchall())
    finally:
        if idle:
            connection.rollback()


def _by_session(handle: Any, tables: TableNames) -> Found:
    return _on_session(handle.session, tables)


def _on_session(session: Any, tables: TableNames) -> Sequence[Put]:
    if session.in_transaction():
        return _on_connection(session.connection(), tables)
    # Asked for its connection it would begin, and `with session.begin():` would fail later.
    bind = session.get_bind()
    if hasattr(bind, "exec_driver_sql"):  # the test's own connection, in the test's own transaction
        return _on_connection(bind, tables)
    with bind.connect() as connection:
        return _on_connection(connection, tables)


# ── drivers that are awaited ──


async def _by_async_session(handle: Any, tables: TableNames) -> Sequence[Put]:
    found: Sequence[Put] = await handle.session.run_sync(_on_session, tables)
    return found


async def _by_async_connection(handle: Any, tables: TableNames) -> Sequence[Put]:
    found: Sequence[Put] = await handle.connection.run_sync(_on_connection, tables)
    return found


def _by_async_cursor(
    dialect: Dialect, options: Callable[[], dict[str, Any]] = dict
) -> Callable[[Any, TableNames], Found]:
    async def look(handle: Any, tables: TableNames) -> Sequence[Put]:
        connection, idle = handle.connection, _is_idle(handle)
        try:
            with translated((), tables):
                async with connection.cursor(**options()) as cursor:
                    await cursor.execute(_sql(dialect, tables))
                    return _all_of(await cursor.fetchall())
        finally:
            if idle and dialect != "sqlite":
                await connection.rollback()

    return look


async def _by_asyncpg(handle: Any, tables: TableNames) -> Sequence[Put]:
    with translated((), tables):
        return _all_of(await handle.connection.fetch(_sql("postgres", tables)))


# ── MongoDB ──


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
    "SqliteHandle": _by_cursor("sqlite"),
    "PsycopgHandle": _by_cursor("postgres", _in_tuples),
    "Psycopg2Handle": _by_cursor("postgres"),
    "PyMySQLHandle": _by_cursor("mysql"),
    "MySQLdbHandle": _by_cursor("mysql"),
    "DjangoHandle": _by_django,
    "ConnectionHandle": _by_sqlalchemy,
    "SessionHandle": _by_session,
    "AiosqliteHandle": _by_async_cursor("sqlite"),
    "AsyncPsycopgHandle": _by_async_cursor("postgres", _in_tuples),
    "AsyncmyHandle": _by_async_cursor("mysql"),
    "AsyncpgHandle": _by_asyncpg,
    "AsyncConnectionHandle": _by_async_connection,
    "AsyncSessionHandle": _by_async_session,
    "MongoSessionHandle": _by_mongo,
    "MongoDatabaseHandle": _by_mongo,
    "AsyncMongoSessionHandle": _by_async_mongo,
    "AsyncMongoDatabaseHandle": _by_async_mongo,
}
"""By the class of the handle that `put` writes with."""
