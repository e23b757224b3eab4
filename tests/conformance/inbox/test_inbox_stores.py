"""The inbox keeps its contract on every database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.inbox.desks import PostgresDesk, SQLiteDesk, postgres_desk, sqlite_desk

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
