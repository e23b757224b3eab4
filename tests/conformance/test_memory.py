"""The memory store keeps the contract."""

from __future__ import annotations

from datetime import datetime

import pytest

from postroom.contracts.store import Store
from postroom.stores.memory import MemoryStore
from postroom.testing.contracts import StoreContract
from postroom.testing.contracts._case import NOON, a_message, a_relay


class TestMemory(StoreContract):
    @pytest.fixture
    async def store(self) -> Store:
        return MemoryStore()

    async def test_a_moment_is_a_microsecond(self, store: Store) -> None:
        moment = store.capabilities.time_precision
        assert moment == datetime.resolution
        await store.outbox.put([a_message(not_before=NOON + moment)])
        relay = await a_relay(store)
        assert await relay.seqs(now=NOON) == []
        assert len(await relay.seqs(now=NOON + moment)) == 1


async def test_a_block_gets_the_store_itself() -> None:
    store = MemoryStore()
    async with store as opened:
        assert opened is store
