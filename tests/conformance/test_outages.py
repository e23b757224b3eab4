"""Every database that says "not now" is waited for: it turns read-only, or is full, and back."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient
from tests.servers.databases import in_database
from tests.servers.mariadb import connect as mariadb_connect
from tests.servers.mongod import Mongod

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Settled, Settlement
from postroom.contracts.store import Store
from postroom.errors import StoreError, StoreUnavailable
from postroom.outbox.outbox import Outbox
from postroom.stores import open_store
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox
from postroom.stores.mongo import blocking_connections as mongo_blocking_connections
from postroom.stores.mongo import connections as mongo_connections
from postroom.stores.sqlite import connections as sqlite_connections
from postroom.stores.sqlite.connections import FileConnection
from postroom.testing.contracts._case import a_message
from postroom.testing.contracts.outage import OutageContract, ReadOnly


class _Opened(OutageContract):
    """The store and the inbox of a URL, which the fixture `url` gives."""

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[Store]:
        async with open_store(url) as store:
            await store.schema.migrate()
            yield store


class TestPostgres(_Opened):
    """As a switch-over does it: connections are cut, and for a while the new ones cannot write."""

    @pytest.fixture
    def url(self, postgres_database: str) -> str:
        return postgres_database

    @pytest.fixture
    def read_only(self, url: str) -> ReadOnly:
        name = urlsplit(url).path[1:]

        @contextmanager
        def read_only() -> Iterator[None]:
            with psycopg.connect(in_database(url, "postgres"), autocommit=True) as admin:
                admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name]
                )
                try:
                    yield
                finally:
                    # Whoever stays on an old connection stays read-only.
                    admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())

        return read_only


class TestMariaDB(_Opened):
    """`read_only`, as of a replica, for a user who may not write all the same."""

    @pytest.fixture
    def url(self, mariadb_database: str) -> Iterator[str]:
        name = urlsplit(mariadb_database).path[1:]
        user = f"w{name[-8:]}"
        _mariadb(mariadb_database, f"CREATE USER {user}@'127.0.0.1'")
        _mariadb(mariadb_database, f"GRANT ALL ON {name}.* TO {user}@'127.0.0.1'")
        yield mariadb_database.replace("postroom@", f"{user}@")
        _mariadb(mariadb_database, f"DROP USER {user}@'127.0.0.1'")

    @pytest.fixture
    def read_only(self, mariadb_database: str) -> ReadOnly:
        @contextmanager
        def read_only() -> Iterator[None]:
            _mariadb(mariadb_database, "SET GLOBAL read_only = 1")
            try:
                yield
            finally:
                _mariadb(mariadb_database, "SET GLOBAL read_only = 0")

        return read_only


def _mariadb(url: str, statement: str) -> None:
    connection = mariadb_connect(url)
    try:
        connection.cursor().execute(statement)
    finally:
        connection.close()


class _Connections:
    """Every connection to a SQLite file that begins a transaction while it is set gets a pragma, and keeps it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pragma: str) -> None:
        self._is_set = False

        class Moody(FileConnection):
            def execute(moody, sql: str, *args: Any) -> sqlite3.Cursor:  # noqa: N805 - two of them speak here
                # In the thread that it is used in: a connection is no place for two at once.
                if self._is_set and sql.startswith("BEGIN"):
                    super().execute(pragma)
                return super().execute(sql, *args)

        monkeypatch.setattr(sqlite_connections, "FileConnection", Moody)

    @contextmanager
    def set(self) -> Iterator[None]:
        self._is_set = True
        try:
            yield
        finally:
            # Whoever stays on an old connection stays read-only.
            self._is_set = False


class _OnSQLite(_Opened):
    @pytest.fixture
    def url(self, tmp_path: Path, connections: _Connections) -> str:
        return f"sqlite:///{tmp_path / 'shop.db'}"

    @pytest.fixture
    def read_only(self, connections: _Connections) -> ReadOnly:
        return connections.set


class TestSQLiteReadOnly(_OnSQLite):
    @pytest.fixture
    def connections(self, monkeypatch: pytest.MonkeyPatch) -> _Connections:
        return _Connections(monkeypatch, "PRAGMA query_only = on")


class TestAFullDisk:
    """SQLite's own limit of a file's size says the same as a disk."""

    async def test_a_full_sqlite_is_away_and_comes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = _Connections(monkeypatch, "PRAGMA max_page_count = 1")
        url, large = f"sqlite:///{tmp_path / 'shop.db'}", a_message(data="x" * 200_000)
        async with open_store(url) as store:
            await store.schema.migrate()
            with connections.set():
                for _ in range(2):
                    with pytest.raises(StoreUnavailable, match="disk is full"):
                        await store.outbox.put([large])
                async with store.outbox.transaction() as handle:
                    for message in (large, a_message()):  # after the first it is over, and nothing may commit by itself
                        with pytest.raises(StoreUnavailable):
                            await Outbox().put(handle, message)
            assert await store.ops.find(Query()) == []
            await store.outbox.put([large])
            with connections.set(), pytest.raises(StoreUnavailable, match="disk is full"):
                async with store.inbox.transaction() as tx:
                    Outbox().put(tx.handle, large.replace(id=uuid4()))
            async with store.inbox.transaction() as tx:
                Outbox().put(tx.handle, large.replace(id=uuid4()))
            assert len(await store.ops.find(Query())) == 2


class TestMongo(_Opened):
    """The primary steps down (10107), or its disk is full (14031)."""

    @pytest.fixture(params=[10107, 14031], ids=["no-primary", "no-space"])
    def code(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
        # What is tried again for ten seconds otherwise is for one here.
        monkeypatch.setattr(mongo_connections.Connections.run, "__kwdefaults__", {"patience": 1.0})
        for module in (mongo_blocking_connections, mongo_connections):
            monkeypatch.setattr(module, "TRANSACTION_SECONDS", 1.0)
        return int(request.param)

    @pytest.fixture
    def url(self, failing_mongo_server: Mongod) -> str:
        return f"{failing_mongo_server.url}".replace("/?", "/shop?")

    @pytest.fixture
    def read_only(self, url: str, code: int) -> ReadOnly:
        commands = ["insert", "update", "delete", "findAndModify", "bulkWrite", "commitTransaction"]

        @contextmanager
        def read_only() -> Iterator[None]:
            with MongoClient[dict[str, Any]](url) as client:
                data = {"failCommands": commands, "errorCode": code}
                client.admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data})
                try:
                    yield
                finally:
                    client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})

        return read_only


# ── the contract itself ──


class Sometimes(MemoryOutbox):
    """The store in memory, which can be told to take no writes."""

    error: type[StoreError] = StoreUnavailable

    def __init__(self) -> None:
        super().__init__()
        self.is_read_only = False

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self.is_read_only = True
        yield
        self.is_read_only = False

    def _check(self) -> None:
        if self.is_read_only:
            raise self.error("It is read-only.")

    async def put(self, messages: Any) -> None:
        self._check()
        await super().put(messages)

    async def join(self, *args: Any, **options: Any) -> None:
        self._check()
        await super().join(*args, **options)

    async def renew(self, *args: Any, **options: Any) -> frozenset[int]:
        self._check()
        return await super().renew(*args, **options)

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        self._check()
        return await super().settle(settlements, now=now)


class CallsItRefused(Sometimes):
    error = StoreError


class StaysReadOnly(Sometimes):
    """It does not look for the primary anew."""

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self.is_read_only = True
        yield


async def test_a_store_that_keeps_to_it_passes_and_saboteurs_are_caught() -> None:
    case = OutageContract().test_a_store_that_is_read_only_is_away_and_comes_back
    good = Sometimes()
    await case(MemoryStore(good), good.read_only)
    for saboteur in (CallsItRefused(), StaysReadOnly()):
        with pytest.raises(StoreError):
            await case(MemoryStore(saboteur), saboteur.read_only)
