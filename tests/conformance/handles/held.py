"""Every handle that people hold, each opened outside a transaction, with the few things that the cases do with it."""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

HAS_MYSQLCLIENT = PathFinder.find_spec("MySQLdb") is not None
"""Looked for on disk: PyMySQL stands in for the module once Django was used, and then it can be imported."""
Open = Callable[[str], AbstractAsyncContextManager["Held"]]


async def done(thing: Any) -> Any:
    """What it is, or what it comes to when awaited: one way to drive sync and async alike."""
    return await thing if inspect.isawaitable(thing) else thing


@dataclass
class Held:
    """A handle; and how its owner begins, commits and rolls back with it."""

    thing: Any
    """What `put` is given."""
    remedy: str
    """What a refusal outside a transaction must say."""

    async def begin(self) -> None:
        await done(self.thing.begin())

    async def run(self, sql: str) -> None:
        await done(self.thing.execute(sql))

    async def commit(self) -> None:
        await done(self.thing.commit())

    async def rollback(self) -> None:
        await done(self.thing.rollback())


class Sqlite(Held):
    async def begin(self) -> None:
        await self.run("BEGIN IMMEDIATE")


class Psycopg(Held):
    async def begin(self) -> None:
        await self.run("SELECT 1")


class Psycopg2(Psycopg):
    async def run(self, sql: str) -> None:
        with self.thing.cursor() as cursor:
            cursor.execute(sql)


class MySQL(Held):
    """A driver of MariaDB and MySQL: `begin` is a method of its connection, `execute` one of its cursor."""

    async def run(self, sql: str) -> None:
        await done(self.thing.cursor().execute(sql))


@dataclass
class Asyncpg(Held):
    block: Any = field(default=None)

    async def begin(self) -> None:
        self.block = self.thing.transaction()
        await self.block.start()

    async def commit(self) -> None:
        block, self.block = self.block, None
        await block.commit()

    async def rollback(self) -> None:
        if self.block:
            block, self.block = self.block, None
            await block.rollback()


class Connection(Held):
    async def run(self, sql: str) -> None:
        await done(self.thing.exec_driver_sql(sql))


class Session(Held):
    async def run(self, sql: str) -> None:
        connection = await done(self.thing.connection())
        await done(connection.exec_driver_sql(sql))


@dataclass
class Django(Held):
    block: Any = field(default=None)

    async def begin(self) -> None:
        from django.db.transaction import atomic

        self.block = atomic()
        self.block.__enter__()

    async def run(self, sql: str) -> None:
        with self.thing.cursor() as cursor:
            cursor.execute(sql)

    async def commit(self) -> None:
        block, self.block = self.block, None
        block.__exit__(None, None, None)

    async def rollback(self) -> None:
        if self.block:
            self.thing.set_rollback(True)
            await self.commit()


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


@asynccontextmanager
async def sqlite3_connection(url: str) -> AsyncIterator[Held]:
    with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as connection:
        yield Sqlite(connection, 'connection.execute("BEGIN IMMEDIATE")')


@asynccontextmanager
async def aiosqlite_connection(url: str) -> AsyncIterator[Held]:
    import aiosqlite

    async with aiosqlite.connect(path_of(url), isolation_level=None) as connection:
        yield Sqlite(connection, 'await connection.execute("BEGIN IMMEDIATE")')


@asynccontextmanager
async def psycopg_connection(url: str) -> AsyncIterator[Held]:
    import psycopg

    with contextlib.closing(psycopg.connect(url)) as connection:
        yield Psycopg(connection, "`with connection.transaction():`")


@asynccontextmanager
async def psycopg_async_connection(url: str) -> AsyncIterator[Held]:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(url)
    try:
        yield Psycopg(connection, "`async with connection.transaction():`")
    finally:
        await connection.close()


@asynccontextmanager
async def psycopg2_connection(url: str) -> AsyncIterator[Held]:
    import psycopg2

    with contextlib.closing(psycopg2.connect(url)) as connection:
        yield Psycopg2(connection, "write your data first")


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Held]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        yield Asyncpg(connection, "`async with connection.transaction():`")
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pooled(url: str) -> AsyncIterator[Held]:
    import asyncpg

    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield Asyncpg(connection, "`async with connection.transaction():`")


def mysql_parameters(url: str) -> dict[str, Any]:
    """What the drivers of MariaDB and MySQL are told, in words that all of them know."""
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port, "user": parts.username, "database": parts.path[1:]}


@asynccontextmanager
async def pymysql_connection(url: str) -> AsyncIterator[Held]:
    with contextlib.closing(pymysql.connect(**mysql_parameters(url))) as connection:
        yield MySQL(connection, "run connection.begin() first")


@asynccontextmanager
async def pymysql_in_latin1(url: str) -> AsyncIterator[Held]:
    """As an old service sets it up: neither the letters nor the strictness of today."""
    old = pymysql.connect(**mysql_parameters(url), charset="latin1", autocommit=True, sql_mode="")
    with contextlib.closing(old) as connection:
        yield MySQL(connection, "run connection.begin() first")


@asynccontextmanager
async def mysqlclient_connection(url: str) -> AsyncIterator[Held]:
    skip_without_mysqlclient()
    connect: Any = import_module("MySQLdb").connect
    with contextlib.closing(connect(**mysql_parameters(url))) as connection:
        yield MySQL(connection, "run connection.begin() first")


def skip_without_mysqlclient() -> None:
    if not HAS_MYSQLCLIENT:
        pytest.skip("mysqlclient has no wheels: where it was not built, it is not tested")


@asynccontextmanager
async def asyncmy_connection(url: str) -> AsyncIterator[Held]:
    import asyncmy

    connection = await asyncmy.connect(**mysql_parameters(url))
    try:
        yield MySQL(connection, "run await connection.begin() first")
    finally:
        await connection.ensure_closed()


@asynccontextmanager
async def asyncmy_pooled(url: str) -> AsyncIterator[Held]:
    import asyncmy

    async with asyncmy.create_pool(**mysql_parameters(url), minsize=1, maxsize=1) as pool, pool.acquire() as connection:
        yield MySQL(connection, "run await connection.begin() first")


def sqlalchemy_sync(driver: str, kind: str, **options: Any) -> Open:
    """A Session, a scoped_session or a Connection on this driver."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Held]:
        from sqlalchemy import create_engine, orm

        if driver == "mysqldb":
            skip_without_mysqlclient()
        engine = create_engine(_with_driver(url, driver), **options)
        if kind == "begun":
            _begin_by_hand(engine)
        try:
            if kind in {"Connection", "begun"}:
                with engine.connect() as connection:
                    yield Connection(connection, "`with connection.begin():`")
            else:
                make = orm.sessionmaker(engine)
                session: Any = orm.scoped_session(make) if kind == "scoped_session" else make()
                yield Session(session, "`with session.begin():`")
                session.close()
        finally:
            engine.dispose()

    return opened


def sqlalchemy_async(driver: str, kind: str, **options: Any) -> Open:
    """An AsyncSession, an async_scoped_session or an AsyncConnection on this driver."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Held]:
        from sqlalchemy.ext import asyncio as sa

        engine = sa.create_async_engine(_with_driver(url, driver), **options)
        try:
            if kind == "AsyncConnection":
                async with engine.connect() as connection:
                    yield Connection(connection, "`async with connection.begin():`")
            else:
                make = sa.async_sessionmaker(engine)
                scoped = kind == "async_scoped_session"
                session: Any = sa.async_scoped_session(make, scopefunc=lambda: 1) if scoped else make()
                yield Session(session, "`async with session.begin():`")
                await session.close()
        finally:
            await engine.dispose()

    return opened


def django_connection(proxy: bool) -> Open:
    """`django.db.connection`, which is a proxy, or what it stands for: `connections["default"]`."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Held]:
        import django
        from django.conf import settings
        from django.db import connection, connections

        if not settings.configured:
            settings.configure()
            django.setup()
        if not HAS_MYSQLCLIENT:
            pymysql.install_as_MySQLdb()  # Django knows no other driver by name; this is PyMySQL's way in
        connections.settings = connections.configure_settings({"default": _django_settings(url)})
        try:
            yield Django(connection if proxy else connections["default"], "`with transaction.atomic():`")
        finally:
            connections["default"].close()
            del connections["default"]

    return opened


def _with_driver(url: str, driver: str) -> str:
    return url.replace("://", f"+{driver}://", 1)


def _begin_by_hand(engine: Any) -> None:
    """SQLAlchemy's own recipe for SQLite: the driver begins nothing, SQLAlchemy does."""
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def quiet(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def _django_settings(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    parts = urlsplit(url)
    return {
        "ENGINE": f"django.db.backends.{'mysql' if parts.scheme == 'mariadb' else 'postgresql'}",
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
    }


ON_SQLITE: dict[str, Open] = {
    "sqlite3": sqlite3_connection,
    "aiosqlite": aiosqlite_connection,
    "Session on sqlite3": sqlalchemy_sync("pysqlite", "Session"),
    "scoped_session on sqlite3": sqlalchemy_sync("pysqlite", "scoped_session"),
    "Connection on sqlite3": sqlalchemy_sync("pysqlite", "Connection"),
    "Connection on sqlite3, begun by hand": sqlalchemy_sync("pysqlite", "begun"),
    "AsyncSession on aiosqlite": sqlalchemy_async("aiosqlite", "AsyncSession"),
    "async_scoped_session on aiosqlite": sqlalchemy_async("aiosqlite", "async_scoped_session"),
    "AsyncConnection on aiosqlite": sqlalchemy_async("aiosqlite", "AsyncConnection"),
    "Django's connection on SQLite": django_connection(proxy=True),
    "Django's connections[] on SQLite": django_connection(proxy=False),
}
ON_POSTGRES: dict[str, Open] = {
    "psycopg": psycopg_connection,
    "psycopg async": psycopg_async_connection,
    "psycopg2": psycopg2_connection,
    "asyncpg": asyncpg_connection,
    "asyncpg from a pool": asyncpg_pooled,
    "Session on psycopg": sqlalchemy_sync("psycopg", "Session"),
    "Connection on psycopg": sqlalchemy_sync("psycopg", "Connection"),
    "Session on psycopg2": sqlalchemy_sync("psycopg2", "Session"),
    "Connection on psycopg2": sqlalchemy_sync("psycopg2", "Connection"),
    "AsyncSession on psycopg": sqlalchemy_async("psycopg", "AsyncSession"),
    "AsyncConnection on psycopg": sqlalchemy_async("psycopg", "AsyncConnection"),
    "AsyncSession on asyncpg": sqlalchemy_async("asyncpg", "AsyncSession"),
    "AsyncConnection on asyncpg": sqlalchemy_async("asyncpg", "AsyncConnection"),
    "Django's connection on PostgreSQL": django_connection(proxy=True),
    "Django's connections[] on PostgreSQL": django_connection(proxy=False),
}
ON_MARIADB: dict[str, Open] = {
    "PyMySQL": pymysql_connection,
    "PyMySQL in latin1, not strict": pymysql_in_latin1,
    "mysqlclient": mysqlclient_connection,
    "asyncmy": asyncmy_connection,
    "asyncmy from a pool": asyncmy_pooled,
    "Session on PyMySQL": sqlalchemy_sync("pymysql", "Session"),
    "Connection on PyMySQL": sqlalchemy_sync("pymysql", "Connection"),
    "Connection on mysqlclient": sqlalchemy_sync("mysqldb", "Connection"),
    "AsyncSession on asyncmy": sqlalchemy_async("asyncmy", "AsyncSession"),
    "AsyncConnection on asyncmy": sqlalchemy_async("asyncmy", "AsyncConnection"),
    "Django's connection on MariaDB": django_connection(proxy=True),
    "Django's connections[] on MariaDB": django_connection(proxy=False),
}
AUTOCOMMIT: dict[str, Open] = {
    f"{kind} on {driver}": make(driver, kind, isolation_level="AUTOCOMMIT")
    for make, kind, drivers in (
        (sqlalchemy_sync, "Session", ("pysqlite", "psycopg", "psycopg2", "pymysql")),
        (sqlalchemy_sync, "Connection", ("pysqlite", "psycopg", "psycopg2", "pymysql")),
        (sqlalchemy_async, "AsyncSession", ("aiosqlite", "psycopg", "asyncpg", "asyncmy")),
        (sqlalchemy_async, "AsyncConnection", ("aiosqlite", "psycopg", "asyncpg", "asyncmy")),
    )
    for driver in drivers
}
