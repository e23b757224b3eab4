"""Holding lanes: renewed by themselves, taken when free, handed over when another relay joins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from postroom.clock import monotonic
from postroom.errors import StoreUnavailable
from postroom.events import LanesLost, LanesReleased, LanesTaken, Listeners
from postroom.failpoints import reach
from postroom.relay.holdings import Holdings, fair_share
from postroom.store import Lost, RelayInfo, Store

BEATS_PER_LEASE = 3


class Heartbeat:
    """Keeps a relay's lanes, on a store (so on a connection) of its own."""

    def __init__(
        self, store: Store, info: RelayInfo, holdings: Holdings, lease: timedelta, lost: Lost, listeners: Listeners
    ) -> None:
        self._store, self._info, self._holdings = store, info, holdings
        self._lease, self._lost, self._listeners = lease, lost, listeners
        self._free_since: dict[int, float] = {}

    async def run(self, stopping: asyncio.Event, changed: Callable[[], None]) -> None:
        """Beat until stopped. A database that is away is waited for: the deadlines run out by themselves."""
        beat = self._lease.total_seconds() / BEATS_PER_LEASE
        while not stopping.is_set():
            try:
                async with asyncio.timeout(beat):
                    await self.beat()
            except (StoreUnavailable, TimeoutError):
                self._tell_lost(self._holdings.expire(monotonic()))
            changed()
            # With free lanes about, or after a refusal, look again soon; else in the rhythm of the lease.
            pause = beat if len(self._holdings) else min(beat, 0.5)
            try:
                async with asyncio.timeout(pause):
                    await stopping.wait()
            except TimeoutError:
                continue

    async def beat(self) -> None:
        """One round: say that I am alive, renew what I hold, take or hand over until my share is fair."""
        await self._renew()
        await self._store.join(self._info)
        lanes = await self._store.lanes()
        others = await self._alive_besides_me()
        share = fair_share(len(lanes), others + 1)
        await self._take(share, [lane.lane for lane in lanes if lane.owner is None])
        await self._hand_over(share)

    async def _renew(self) -> None:
        asked = self._holdings.epochs
        deadline = monotonic() + self._lease.total_seconds()
        mine = await self._store.renew(self._info.owner, asked, lease=self._lease) if asked else frozenset()
        self._tell_lost(self._holdings.renewed(mine, deadline, asked))
        self._tell_lost(self._holdings.expire(monotonic()))

    async def _alive_besides_me(self) -> int:
        since = datetime.now(UTC) - self._lease
        relays = await self._store.relays()
        return sum(
            relay.owner != self._info.owner and relay.seen_at is not None and relay.seen_at > since for relay in relays
        )

    async def _take(self, share: int, free: list[int]) -> None:
        """Up to the share; beyond it only when lanes were left lying for a whole lease."""
        now = monotonic()
        self._free_since = {lane: self._free_since.get(lane, now) for lane in free}
        abandoned = sum(now - since > self._lease.total_seconds() for since in self._free_since.values())
        wanted = max(share - len(self._holdings), abandoned)
        if wanted > 0:
            deadline = monotonic() + self._lease.total_seconds()
            taken = await self._store.take(self._info.owner, limit=wanted, lease=self._lease, lost=self._lost)
            self._holdings.add(taken, deadline)
            if taken:
                reach("after-take")
                self._listeners(LanesTaken(owner=self._info.owner, lanes=tuple(lane.lane for lane in taken)))

    async def _hand_over(self, share: int) -> None:
        leaving = self._holdings.to_hand_over(share)
        if leaving:
            await self.release(leaving)

    async def release(self, lanes: dict[int, int]) -> None:
        """Give these lanes back at once."""
        released = await self._store.release(self._info.owner, lanes)
        self._holdings.drop(released)
        if released:
            self._listeners(LanesReleased(owner=self._info.owner, lanes=tuple(sorted(released))))

    async def leave(self) -> None:
        """Give everything back and say goodbye."""
        reach("before-release")
        await self.release(self._holdings.epochs)
        await self._store.leave(self._info.owner)

    def _tell_lost(self, lanes: list[int]) -> None:
        if lanes:
            self._listeners(LanesLost(owner=self._info.owner, lanes=tuple(lanes)))
