"""What to say of a thing that is no handle: most often it is one step away from one."""

from __future__ import annotations

from types import ModuleType

from postroom.message import Message

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
