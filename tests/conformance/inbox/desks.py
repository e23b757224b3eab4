"""A database with an inbox and a table for effects, for each kind of database."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
from pymongo import MongoClient
from tests.servers.mariadb import connect

from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.stores import open_store, sqlite_path
from postroom.testing.contracts.inbox import End

MONGO_ENDS: dict[End, str] = {
    "commit": "commit_transaction",
    "rollback": "abort_transaction",
    "close": "end_session",
}


class _Desk:
    def __init__(self, url: str, opened: Store) -> None:
        self.url, self.opened, self.store = url, opened, opened.inbox

    async def put(self) -> Sequence[Message]:
        async with open_store(self.url) as store:
            return [record.message for record in await store.ops.find(Query())]


class SQLiteDesk(_Desk):
    async def end(self, handle: Any, how: End) -> None:
        self.end_blocking(handle, how)

    def end_blocking(self, handle: Any, how: End) -> None:
        getattr(handle, how)()

    async def write(self, handle: Any, effect: str) -> None:
        self.write_blocking(handle, effect)

    def write_blocking(self, handle: Any, effect: str) -> None:
        handle.execute("INSERT INTO effects (name) VALUES (?)", [effect])

    async def effects(self) -> Sequence[str]:
        with sqlite3.connect(sqlite_path(self.url)) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM effects ORDER BY id")]


class PostgresDesk(_Desk):
    async def end(self, handle: Any, how: End) -> None:
        # psycopg refuses its own commit() and rollback() here, and cannot refuse the statement.
        await (handle.close() if how == "close" else handle.execute(how))

    def end_blocking(self, handle: Any, how: End) -> None:
        handle.close() if how == "close" else handle.execute(how)

    async def write(self, handle: Any, effect: str) -> None:
        await handle.execute("INSERT INTO effects (name) VALUES (%s)", [effect])

    def write_blocking(self, handle: Any, effect: str) -> None:
        handle.execute("INSERT INTO effects (name) VALUES (%s)", [effect])

    async def effects(self) -> Sequence[str]:
        with psycopg.connect(self.url) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM effects ORDER BY id")]


class MariaDBDesk(_Desk):
    async def end(self, handle: Any, how: End) -> None:
        await (handle.ensure_closed() if how == "close" else getattr(handle, how)())

    def end_blocking(self, handle: Any, how: End) -> None:
        getattr(handle, how)()

    async def write(self, handle: Any, effect: str) -> None:
        await handle.cursor().execute("INSERT INTO effects (name) VALUES (%s)", [effect])

    def write_blocking(self, handle: Any, effect: str) -> None:
        handle.cursor().execute("INSERT INTO effects (name) VALUES (%s)", [effect])

    async def effects(self) -> Sequence[str]:
        with closing(connect(self.url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT name FROM effects ORDER BY id")
            return [name for (name,) in cursor.fetchall()]


class MongoDesk(_Desk):
    async def end(self, handle: Any, how: End) -> None:
        await getattr(handle, MONGO_ENDS[how])()

    def end_blocking(self, handle: Any, how: End) -> None:
        getattr(handle, MONGO_ENDS[how])()

    async def write(self, handle: Any, effect: str) -> None:
        await handle.client.get_default_database().effects.insert_one({"name": effect}, session=handle)

    def write_blocking(self, handle: Any, effect: str) -> None:
        handle.client.get_default_database().effects.insert_one({"name": effect}, session=handle)

    async def effects(self) -> Sequence[str]:
        with MongoClient[dict[str, Any]](self.url) as client:
            return [each["name"] for each in client.get_default_database().effects.find(sort=[("_id", 1)])]


@asynccontextmanager
async def sqlite_desk(file: Path) -> AsyncIterator[SQLiteDesk]:
    url = f"sqlite:///{file}"
    async with open_store(url) as store:
        await store.schema.migrate()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE effects (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    async with open_store(url) as opened:
        yield SQLiteDesk(url, opened)


@asynccontextmanager
async def postgres_desk(url: str) -> AsyncIterator[PostgresDesk]:
    async with open_store(url) as store:
        await store.schema.migrate()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE effects (id bigserial PRIMARY KEY, name text NOT NULL)")
    async with open_store(url) as opened:
        yield PostgresDesk(url, opened)


@asynccontextmanager
async def mariadb_desk(url: str) -> AsyncIterator[MariaDBDesk]:
    """MySQL's too."""
    async with open_store(url) as store:
        await store.schema.migrate()
    with closing(connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE effects (id bigint AUTO_INCREMENT PRIMARY KEY, name text NOT NULL) ENGINE = InnoDB"
        )
    async with open_store(url) as opened:
        yield MariaDBDesk(url, opened)


@asynccontextmanager
async def mongo_desk(url: str) -> AsyncIterator[MongoDesk]:
    async with open_store(url) as store:
        await store.schema.migrate()
    with MongoClient[dict[str, Any]](url) as client:
        client.get_default_database().create_collection("effects")
    async with open_store(url) as opened:
        yield MongoDesk(url, opened)
