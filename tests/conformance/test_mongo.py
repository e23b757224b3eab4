"""The MongoDB store keeps the contract: on a replica set of one node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postroom.store import Store
from postroom.stores.mongo import MongoStore
from postroom.testing.contracts import StoreContract


class TestMongo(StoreContract):
    @pytest.fixture
    async def store(self, mongo_database: str) -> AsyncIterator[Store]:
        async with MongoStore(mongo_database) as store:
            await store.migrate()
            yield store
