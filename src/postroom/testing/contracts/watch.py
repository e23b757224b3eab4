"""Hints that something was committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried
from postroom.contracts.store import Store
from postroom.testing.contracts._case import StoreCase, a_relay, needs, put

PATIENCE_SECONDS = 10.0


class WatchContract(StoreCase):
    """What `watch` promises. Behind a pooler that carries no notifications there are none, and the relay polls."""

    @needs("notices_commits")
    async def test_a_watch_tells_when_it_stands_and_when_a_message_was_committed(self, store: Store) -> None:
        async with watched(store) as woken:
            await put(store, "a")
            await woken()

    @needs("notices_relays")
    async def test_a_watch_tells_when_a_relay_comes_and_when_lanes_are_free_again(self, store: Store) -> None:
        relay = await a_relay(store)
        async with watched(store) as woken:
            await store.lanes.join(RelayInfo(owner="another", name="another"))
            await woken()
            await store.lanes.release(relay.owner, relay.lanes)
            await woken()

    @needs("notices_relays")
    async def test_a_watch_tells_when_a_person_requeued_something(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), Buried("REJECTED"))
        async with watched(store) as woken:
            await store.ops.requeue(Query(status="dead"))
            await woken()


@asynccontextmanager
async def watched(store: Store) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A watch that stands; what is yielded waits for its next word, which must come."""
    told = asyncio.Event()

    async def woken() -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await told.wait()
        except TimeoutError:
            raise AssertionError("the watch said nothing") from None
        told.clear()

    watching = asyncio.create_task(store.outbox.watch(told.set))
    try:
        await woken()
        yield woken
    finally:
        watching.cancel()
        await asyncio.wait([watching])
