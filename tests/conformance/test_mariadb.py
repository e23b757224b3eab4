"""The store for MariaDB and MySQL keeps the contract."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from postroom.contracts.store import Store
from postroom.stores.mysql import MySQLStore
from postroom.testing.contracts import StoreContract


class TestMariaDB(StoreContract):
    @pytest.fixture
    async def store(self, mariadb_database: str) -> AsyncIterator[Store]:
        async with MySQLStore(mariadb_database) as store:
            await store.schema.migrate()
            yield store


class TestMariaDBByTheCloserLook(StoreContract):
    """As above, with every claim made the way it is for lanes where something waits."""

    @pytest.fixture
    async def store(self, mariadb_database: str) -> AsyncIterator[Store]:
        async with MySQLStore(mariadb_database) as store:
            await store.schema.migrate()
            texts = store._statements.texts
            texts["free_lanes"] = texts["free_lanes"].replace("true\n    AND NOT EXISTS", "false\n    AND NOT EXISTS")
            assert "false\n    AND NOT EXISTS" in texts["free_lanes"]
            yield store


if os.environ.get("POSTROOM_TEST_MYSQL"):

    class TestMySQL(StoreContract):
        """Only where a server is given: none can be fetched, and a hundred skips would say no more than none."""

        @pytest.fixture
        async def store(self, mysql_database: str) -> AsyncIterator[Store]:
            async with MySQLStore(mysql_database) as store:
                await store.schema.migrate()
                yield store
