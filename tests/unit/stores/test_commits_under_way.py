"""A claim whose client gave up while its commit was still under way: who looks into the doubt waits for that commit (R22)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.stores.inside import inside

from postroom.contracts.store import Store
from postroom.stores.mongo import MongoStore
from postroom.stores.mysql import MySQLStore
from postroom.stores.postgres import PostgresStore
from postroom.testing.contracts._case import NOON, Relay, a_relay, put, seqs, statuses

STILL_WAITING_SECONDS = 0.5


@pytest.fixture(params=["postgres", "mariadb", "mongo"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    url: str = request.getfixturevalue(f"{request.param}_database")
    kinds: dict[str, Any] = {"postgres": PostgresStore, "mariadb": MySQLStore, "mongo": MongoStore}
    async with kinds[request.param](url) as store:
        await store.schema.migrate()
        yield store


@asynccontextmanager
async def a_claim_under_way(store: Any, relay: Relay) -> AsyncIterator[None]:
    """Everything is claimed; the commit comes when the block ends."""
    if isinstance(store, MongoStore):
        async with store.outbox.connections.transaction(asyncio.get_running_loop().time() + 60) as session:
            assert await store.outbox._claiming.claim(session, relay.owner, relay.lanes, 100, NOON)
            yield
        return
    async with store._connections.transaction() as slow:
        assert await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=100, now=NOON)
        yield


async def test_a_claim_in_doubt_waits_for_the_commit_and_drops_the_orphan(store: Store) -> None:
    written = await put(store, "a", "b")
    relay = await a_relay(store)
    async with a_claim_under_way(store, relay):
        again = asyncio.ensure_future(
            store.outbox.claim(relay.owner, relay.lanes, limit=100, doubtful=relay.lanes, now=NOON)
        )
        done, _ = await asyncio.wait([again], timeout=STILL_WAITING_SECONDS)
        assert not done, "the doubt was looked into before the commit was there"
    claims = await asyncio.wait_for(again, 20)
    assert seqs(claims) == written
    assert await relay.settle(list(claims)) == "settled"
    assert await statuses(store, *written) == ["published", "published"]


async def test_a_claim_in_doubt_waits_also_for_lanes_that_the_limit_leaves_out(store: Store) -> None:
    written = await put(store, "a", "b")
    relay = await a_relay(store)
    async with a_claim_under_way(store, relay):
        again = asyncio.ensure_future(
            store.outbox.claim(relay.owner, relay.lanes, limit=1, doubtful=relay.lanes, now=NOON)
        )
        done, _ = await asyncio.wait([again], timeout=STILL_WAITING_SECONDS)
        assert not done, "the doubt was looked into before the commit was there"
    first = await asyncio.wait_for(again, 20)
    assert sorted(seqs(first) + await relay.seqs()) == written
