"""What a crash costs those that were in flight, counted in trips, in virtual time (R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from tests.mutants import virtual

from postroom.config.values import RelayConfig
from postroom.contracts.outbox import Retry
from postroom.contracts.transport import Envelope, Outcome, Sent, TransportCapabilities
from postroom.message import Message
from postroom.relay import Relay, Route
from postroom.stores.memory import MemoryStore

BATCH, TRIPS = 426, 4
LOST = BATCH * TRIPS
SECONDS = 0.02
"""How long one trip takes, however many travel."""
LEASE = timedelta(seconds=6)
CONFIG = RelayConfig(
    lease=LEASE, send_timeout=timedelta(seconds=1), poll=timedelta(seconds=0.1), batch=BATCH, concurrency=TRIPS
)


class Trips:
    """A broker that takes everything, and remembers what travelled together."""

    capabilities = TransportCapabilities(name="price", durable=True, ordered=True, batches=True)

    def __init__(self) -> None:
        self.trips: list[list[str]] = []

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        self.trips.append([str(envelope.message.data) for envelope in batch])
        await asyncio.sleep(SECONDS)
        return [Sent() for _ in batch]


async def drained_after(crashes: int, lost: int) -> list[list[str]]:
    """The trips of a relay that takes over after others died with all that they could claim, while new messages come."""
    store = MemoryStore(lanes=16)
    await store.outbox.put([Message("order.paid", key=f"k{number}", data="lost") for number in range(lost)])
    for number in range(crashes):
        taken = await store.lanes.take(
            f"dead-{number}", limit=16, lease=LEASE, lost=lambda _: Retry(timedelta(0), "LOST")
        )
        await store.outbox.claim(f"dead-{number}", {lane.lane: lane.epoch for lane in taken}, limit=16 * lost)
        await asyncio.sleep(LEASE.total_seconds() + 1)
    broker = Trips()
    running = asyncio.get_running_loop().create_task(Relay(store, [Route(to=broker)], config=CONFIG).run())
    await store.outbox.put([Message("order.paid", data="new") for _ in range(lost)])
    async with asyncio.timeout(600):
        while any(row.settled_at is None for row in store.outbox._rows.values()):
            await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.wait([running])
    return broker.trips


def test_after_a_crash_of_a_full_relay_the_backlog_takes_about_as_many_trips_as_ever() -> None:
    async def scene() -> None:
        usual = await drained_after(crashes=0, lost=LOST)
        after = await drained_after(crashes=1, lost=LOST)
        assert len(after) <= 2 * len(usual) + TRIPS, f"{len(usual)} trips became {len(after)}"
        assert max(len(trip) for trip in after if "lost" in trip) <= BATCH // 2

    virtual.run(scene)


def test_lanes_without_suspects_go_on_while_suspects_travel_alone() -> None:
    """After two crashes they travel one by one; lanes without them take no notice."""

    async def scene() -> None:
        trips = await drained_after(crashes=2, lost=12)
        lone = [place for place, trip in enumerate(trips) if "lost" in trip]
        new = [place for place, trip in enumerate(trips) if "new" in trip]
        assert {len(trips[place]) for place in lone} == {1}
        assert min(new) < lone[1], "who was never lost waited for those that were"

    virtual.run(scene)
