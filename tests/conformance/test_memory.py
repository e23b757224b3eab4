"""The memory store keeps the contract."""

from __future__ import annotations

import pytest

from postroom.store import Store
from postroom.stores.memory import MemoryStore
from postroom.testing.contracts import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    async def store(self) -> Store:
        return MemoryStore()
