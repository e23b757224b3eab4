"""The inbox keeps its contract on every database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

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

from postroom.testing.contracts import InboxContract
from postroom.testing.contracts.inbox import an_event


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
    @pytest.fixture
    async def desk(self, pgbouncer_database: str) -> AsyncIterator[PostgresDesk]:
        async with postgres_desk(pgbouncer_database) as desk:
            yield desk


@pytest.mark.parametrize("how", ["handle", "handle_blocking"])
async def test_behind_a_pooler_many_are_handled_at_once_and_none_fails(pgbouncer_database: str, how: str) -> None:
    """Server connections are lent to one after the other: nothing of one may be left for the next."""
    contract, ids = InboxContract(), [an_event() for _ in range(300)]
    async with postgres_desk(pgbouncer_database) as desk:
        assert all(await asyncio.gather(*(getattr(contract, how)(desk, event) for event in ids)))
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
