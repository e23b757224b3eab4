"""The shop, on every database that costs little to start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.inbox.desks import postgres_desk, sqlite_desk
from tests.unit.inbox.shops import Shop


@pytest.fixture(params=["sqlite", "postgres"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    if request.param == "sqlite":
        async with sqlite_desk(tmp_path / "shop.db") as desk:
            yield Shop(desk)
        return
    async with postgres_desk(request.getfixturevalue("postgres_database")) as postgres:
        yield Shop(postgres)
