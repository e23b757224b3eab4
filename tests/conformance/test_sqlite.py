"""The SQLite store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.contracts.store import Store
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts import StoreContract


class TestSQLite(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with SQLiteStore(tmp_path / "post.db") as store:
            await store.schema.migrate()
            yield store
