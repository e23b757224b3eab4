"""Batches that tune themselves: they grow over a backlog, stay as they are set, and learn nothing of a broker that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.conftest import DATABASES, url_of

from postroom.config.values import RelayConfig
from postroom.contracts.outbox import Claim
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.relay import Drained, Relay, Route
from postroom.relay.batch_size import MOST_BYTES
from postroom.stores import open_store
from postroom.transports.memory import MemoryBroker, MemoryPublisher

LONG = timedelta(seconds=100)
"""A send time-out of which a tenth is more than any trip here takes, however busy the machine."""
LEASE = timedelta(minutes=10)
TRANSACTION_BYTES = 2_000_000
"""How many bytes of bodies are put in one transaction: the tests' MongoDB has a small cache, which they share."""


@pytest.fixture(params=["memory", *DATABASES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(url_of(request.param, request, tmp_path)) as opened:
        await opened.schema.migrate()
        yield opened


@pytest.fixture
def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many messages each claim asked for, and how many it got."""
    real, seen = store.outbox.claim, []

    async def claim(*args: Any, limit: int, **kwargs: Any) -> Sequence[Claim]:
        claims = await real(*args, limit=limit, **kwargs)
        seen.append((limit, sum(len(claim.messages) for claim in claims)))
        return claims

    monkeypatch.setattr(store.outbox, "claim", claim)
    return seen


def config(**fields: Any) -> RelayConfig:
    return RelayConfig(lease=LEASE, **{"send_timeout": LONG} | fields)


async def drain(store: Store, config: RelayConfig, publisher: MemoryPublisher | None = None) -> None:
    relay = Relay(store, [Route(to=publisher or MemoryPublisher(MemoryBroker()))], config=config)
    assert await asyncio.wait_for(relay.drain(), 120) == Drained(dead=0, parked=0)


async def backlog(
    store: Store, *, key: str | None = None, number: int = 800, body: bytes = b"1", keyless: bool = False
) -> None:
    keys = [None if keyless else key or f"k{each % 100}" for each in range(number)]
    messages = [Message("order.paid", key=each, body=body) for each in keys]
    # In parts: a database may not take many large bodies in one transaction.
    part = max(min(100, TRANSACTION_BYTES // len(body)), 1)
    for begin in range(0, number, part):
        await store.outbox.put(messages[begin : begin + part])


async def test_batches_grow_while_a_backlog_drains(store: Store, asked: list[tuple[int, int]]) -> None:
    await backlog(store)
    await drain(store, config())
    assert asked[0][0] == 32
    assert max(limit for limit, _ in asked) >= 64
    assert sum(found for _, found in asked) == 800


async def test_batches_of_one_hot_key_grow_too(store: Store, asked: list[tuple[int, int]]) -> None:
    await backlog(store, key="hot")
    await drain(store, config())
    # By 32 it would be 25.
    assert sum(found > 0 for _, found in asked) < 10


async def test_a_batch_set_by_hand_stays_as_it_is(store: Store, asked: list[tuple[int, int]]) -> None:
    await backlog(store, number=500)
    await drain(store, config(batch=50))
    assert {limit for limit, _ in asked} == {50}


@pytest.mark.requirement("C2")
async def test_what_is_claimed_together_up_to_500_is_published_and_settled_together(
    store: Store, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    published, settled, settle = list[int](), list[int](), store.outbox.settle

    class Counting(MemoryPublisher):
        async def publish(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
            published.append(len(batch))
            return await super().publish(batch, *args, **kwargs)

    async def counting(settlements: Any, *args: Any, **kwargs: Any) -> Any:
        settled.append(sum(len(each.claim.messages) for each in settlements))
        return await settle(settlements, *args, **kwargs)

    monkeypatch.setattr(store.outbox, "settle", counting)
    await backlog(store, number=1_500, keyless=True)
    await drain(store, config(batch=500, concurrency=1), Counting(MemoryBroker()))
    claimed = [found for limit, found in asked if found and limit == 500]
    assert published == settled == claimed
    assert (max(claimed), sum(claimed)) == (500, 1_500)


async def test_no_batch_is_larger_than_the_most_that_was_set(store: Store, asked: list[tuple[int, int]]) -> None:
    await backlog(store, number=500)
    await drain(store, config(batch_max=50))
    assert max(limit for limit, _ in asked) == 50


async def test_slow_sends_keep_batches_small(store: Store, asked: list[tuple[int, int]]) -> None:
    await backlog(store, number=500)

    class Slow(MemoryPublisher):
        async def publish(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.15)
            return await super().publish(*args, **kwargs)

    # A tenth of the time-out is 0.1 s: never quick.
    await drain(store, config(send_timeout=timedelta(seconds=1)), Slow(MemoryBroker()))
    assert {limit for limit, _ in asked} == {32}


async def test_no_claim_asks_for_more_bodies_than_fit(asked: list[tuple[int, int]], store: Store) -> None:
    size = MOST_BYTES // 40
    await backlog(store, number=200, body=b'"%s"' % (b"x" * (size - 2)))
    await drain(store, config())
    assert max(limit for limit, _ in asked) == 40


async def test_nothing_is_learned_while_the_broker_is_away(store: Store, asked: list[tuple[int, int]]) -> None:
    await backlog(store, number=500)
    broker = MemoryBroker()
    broker.away = True
    relay = Relay(store, [Route(to=MemoryPublisher(broker))], config=config())
    running = asyncio.create_task(relay.drain())
    async with asyncio.timeout(60):
        while len(asked) < 4:
            await asyncio.sleep(0.01)
    assert {limit for limit, _ in asked} <= {32, 1}
    assert relay._batch.size == 32
    broker.away = False
    async with asyncio.timeout(60):
        await running
    assert relay._batch.size > 32
