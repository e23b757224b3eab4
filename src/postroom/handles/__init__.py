"""The database handles that people hold, found by the names of their classes: no driver is imported for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from postroom.errors import UnknownHandle
from postroom.handles.handle import Async, AsyncHandle, Handle, Sync, SyncHandle, hint

__all__ = ["Async", "AsyncHandle", "Handle", "Sync", "SyncHandle", "handle_for"]

KNOWN = {
    ("sqlite3", "Connection"): "sqlite:SqliteHandle",
    ("aiosqlite.core", "Connection"): "sqlite:AiosqliteHandle",
    ("psycopg", "Connection"): "psycopg:PsycopgHandle",
    ("psycopg", "AsyncConnection"): "psycopg:AsyncPsycopgHandle",
    ("psycopg2.extensions", "connection"): "psycopg:Psycopg2Handle",
    ("asyncpg.connection", "Connection"): "asyncpg:AsyncpgHandle",
    ("asyncpg.pool", "PoolConnectionProxy"): "asyncpg:AsyncpgHandle",
    ("pymysql.connections", "Connection"): "mysql:PyMySQLHandle",
    ("MySQLdb.connections", "Connection"): "mysql:MySQLdbHandle",
    ("asyncmy.connection", "Connection"): "mysql:AsyncmyHandle",
    ("sqlalchemy.engine.base", "Connection"): "sqlalchemy:ConnectionHandle",
    ("sqlalchemy.orm.session", "Session"): "sqlalchemy:SessionHandle",
    ("sqlalchemy.orm.scoping", "scoped_session"): "sqlalchemy:scoped",
    ("sqlalchemy.ext.asyncio.engine", "AsyncConnection"): "sqlalchemy:AsyncConnectionHandle",
    ("sqlalchemy.ext.asyncio.session", "AsyncSession"): "sqlalchemy:AsyncSessionHandle",
    ("sqlalchemy.ext.asyncio.scoping", "async_scoped_session"): "sqlalchemy:async_scoped",
    ("django.db.backends.base.base", "BaseDatabaseWrapper"): "django:django",
    ("django.utils.connection", "ConnectionProxy"): "django:django",
    ("pymongo.synchronous.client_session", "ClientSession"): "mongo:MongoSessionHandle",
    ("pymongo.asynchronous.client_session", "AsyncClientSession"): "mongo:AsyncMongoSessionHandle",
    ("pymongo.synchronous.database", "Database"): "mongo:MongoDatabaseHandle",
    ("pymongo.asynchronous.database", "AsyncDatabase"): "mongo:AsyncMongoDatabaseHandle",
}
"""Class of a driver to what makes its handle, `module:name` in this package. Subclasses are found too."""


def handle_for(thing: Any) -> Handle:
    """The handle by which to write with this thing, or UnknownHandle.

    A thing that has a method `postroom_handle` brings its own.
    """
    kind: Any = type(thing)
    make = _maker(kind)
    if make is None:
        raise UnknownHandle(hint(thing), type=type(thing).__qualname__)
    return make(thing)


@cache
def _maker(kind: Any) -> Callable[[Any], Handle] | None:
    own: Callable[[Any], Handle] | None = getattr(kind, "postroom_handle", None)
    if own is not None:
        return own
    for each in kind.__mro__:
        if known := KNOWN.get((each.__module__, each.__qualname__)):
            module, _, name = known.partition(":")
            make: Callable[[Any], Handle] = getattr(import_module(f"{__name__}.{module}"), name)
            return make
    return None
