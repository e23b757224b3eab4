"""The PostgreSQL store keeps the contract: by itself, and behind a transaction pooler."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postroom.contracts.store import Store
from postroom.stores.postgres import PostgresStore
from postroom.testing.contracts import StoreContract, WatchContract


class TestPostgres(StoreContract):
    @pytest.fixture
    async def store(self, postgres_database: str) -> AsyncIterator[Store]:
        async with PostgresStore(postgres_database) as store:
            await store.schema.migrate()
            yield store


class TestPostgresByTheCloserLook(StoreContract):
    """As above, with every claim made the way it is for lanes where something waits."""

    @pytest.fixture
    async def store(self, postgres_database: str) -> AsyncIterator[Store]:
        async with PostgresStore(postgres_database) as store:
            await store.schema.migrate()
            texts = store._statements.texts
            for name in ("line", "walk_past"):
                texts[name] = texts[name].replace("true\n        AND NOT EXISTS", "false\n        AND NOT EXISTS")
                assert "false\n        AND NOT EXISTS" in texts[name]
            yield store


class TestPostgresBehindAPooler(StoreContract):
    @pytest.fixture
    async def store(self, pgbouncer_database: str) -> AsyncIterator[Store]:
        async with PostgresStore(pgbouncer_database) as store:
            await store.schema.migrate()
            yield store

    @pytest.fixture(autouse=True)
    def _skip_what_a_pooler_swallows(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in vars(WatchContract):
            pytest.skip("a transaction pooler carries no notifications: the relay polls")
