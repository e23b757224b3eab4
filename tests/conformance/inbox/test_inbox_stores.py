"""The inbox keeps its contract on every database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.conformance.inbox.desks import (
    MariaDBDesk,
    MongoDesk,
    PostgresDesk,
    SQLiteDesk,
    mariadb_desk,
    mongo_desk,
    postgres_desk,
    sqlite_desk,
)

from postroom.errors import StoreUnavailable
from postroom.stores.postgres.inbox import PostgresInbox
from postroom.testing.contracts import InboxContract


class TestSQLiteInbox(InboxContract):
    @pytest.fixture
    async def desk(self, tmp_path: Path) -> AsyncIterator[SQLiteDesk]:
        async with sqlite_desk(tmp_path / "shop.db") as desk:
            yield desk


class TestPostgresInbox(InboxContract):
    @pytest.fixture
    async def desk(self, postgres_database: str) -> AsyncIterator[PostgresDesk]:
        async with postgres_desk(postgres_database) as desk:
            yield desk


class TestPostgresInboxBehindAPooler(InboxContract):
    """Once it has noticed the pooler, which it does by an error that whoever handles begins anew after."""

    @pytest.fixture
    async def desk(self, pgbouncer_database: str) -> AsyncIterator[PostgresDesk]:
        async with postgres_desk(pgbouncer_database) as desk:
            assert isinstance(desk.store, PostgresInbox)
            desk.store._connections.forget_prepared()
            yield desk


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["handle", "handle_blocking"])
async def test_a_pooler_is_noticed_and_after_that_nothing_fails(pgbouncer_database: str, how: str) -> None:
    contract, ids = InboxContract(), [uuid4() for _ in range(60)]

    async def handle(id_: UUID) -> bool:
        try:
            return bool(await getattr(contract, how)(desk, id_))
        except StoreUnavailable:
            return False

    async with postgres_desk(pgbouncer_database) as desk:
        handled: set[UUID] = set()
        for _ in range(20):
            left = [id_ for id_ in ids if id_ not in handled]
            handled |= {id_ for id_, new in zip(left, await asyncio.gather(*map(handle, left)), strict=True) if new}
        assert handled == set(ids)
        assert sorted(await desk.effects()) == sorted(map(str, ids))


class TestMariaDBInbox(InboxContract):
    @pytest.fixture
    async def desk(self, mariadb_database: str) -> AsyncIterator[MariaDBDesk]:
        async with mariadb_desk(mariadb_database) as desk:
            yield desk


class TestMySQLInbox(InboxContract):
    @pytest.fixture
    async def desk(self, mysql_database: str) -> AsyncIterator[MariaDBDesk]:
        async with mariadb_desk(mysql_database) as desk:
            yield desk


class TestMongoInbox(InboxContract):
    @pytest.fixture
    async def desk(self, mongo_database: str) -> AsyncIterator[MongoDesk]:
        async with mongo_desk(mongo_database) as desk:
            yield desk
