"""The tables: made, brought up to date, checked."""

from __future__ import annotations

import asyncio

from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.testing.contracts._case import StoreCase, put


class SchemaContract(StoreCase):
    """What `Schema` promises."""

    async def test_migrating_again_changes_nothing(self, store: Store) -> None:
        await put(store, "a")
        again = await store.schema.migrate()
        assert again.applied == () or list(again.applied) == []
        assert again.before == again.after
        assert len(await store.ops.find(Query())) == 1

    async def test_two_migrations_at_once_are_one(self, store: Store) -> None:
        both = await asyncio.gather(store.schema.migrate(), store.schema.migrate())
        assert {one.after for one in both} == {both[0].after}
        await store.schema.check()

    async def test_a_migrated_store_passes_its_check(self, store: Store) -> None:
        await store.schema.check()
