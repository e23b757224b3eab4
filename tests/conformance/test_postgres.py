"""The PostgreSQL store keeps the contract: by itself, and behind a transaction pooler."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postroom.store import Store
from postroom.stores.postgres import PostgresStore
from postroom.testing.contracts import StoreContract


class TestPostgres(StoreContract):
    @pytest.fixture
    async def store(self, postgres_database: str) -> AsyncIterator[Store]:
        async with PostgresStore(postgres_database) as store:
            await store.migrate()
            yield store


class TestPostgresBehindAPooler(StoreContract):
    @pytest.fixture
    async def store(self, pgbouncer_database: str) -> AsyncIterator[Store]:
        async with PostgresStore(pgbouncer_database) as store:
            await store.migrate()
            yield store
