"""The MongoDB store keeps the contract: on a replica set of one node, also with its dead in a collection of their own; and on
a standalone server, without transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postroom.contracts.store import Store
from postroom.stores.mongo import MongoStore
from postroom.testing.contracts import StoreContract


class TestMongo(StoreContract):
    @pytest.fixture
    async def store(self, mongo_database: str) -> AsyncIterator[Store]:
        async with MongoStore(mongo_database) as store:
            await store.schema.migrate()
            yield store


class TestMongoWithTheDeadApart(StoreContract):
    @pytest.fixture
    async def store(self, mongo_database: str) -> AsyncIterator[Store]:
        async with MongoStore(f"{mongo_database}&postroom_dead=collection") as store:
            await store.schema.migrate()
            yield store


class TestMongoWithoutTransactions(StoreContract):
    @pytest.fixture
    async def store(self, mongo_standalone_database: str) -> AsyncIterator[Store]:
        async with MongoStore(f"{mongo_standalone_database}?postroom_transactions=off") as store:
            await store.schema.migrate()
            yield store
