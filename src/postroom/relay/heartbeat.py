"""Holding lanes: renewed by themselves, taken when free, handed over when another relay joins."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from postroom.clock import monotonic, utcnow
from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.events import LanesLost, LanesReleased, LanesTaken, Listeners
from postroom.relay import presence
from postroom.relay.owned_lanes import OwnedLanes, fair_share
from postroom.telemetry.failpoints import reach

BEATS_PER_LEASE = 3
NUDGE_SECONDS = 1.0
"""At most so often a nudge is followed; and so often a relay without lanes looks for one."""


FORGOTTEN_AFTER = 3
"""After so many silent leases a relay without lanes is taken off the record."""


@dataclass(frozen=True, slots=True)
class Company:
    """Who shares the lanes, as the store says."""

    lanes: Sequence[Lane]
    share: int
    """How many lanes are mine, among the relays that are alive."""
    gone: Collection[str]
    """Owners whose process is no more."""
    forgotten: Collection[str]
    """Relays that were silent for long, and own nothing."""


class Heartbeat:
    """Keeps a relay's lanes, on a store (so on a connection) of its own."""

    def __init__(
        self,
        store: Store,
        info: RelayInfo,
        owned_lanes: OwnedLanes,
        lease: timedelta,
        lost: OnLeaseLost,
        listeners: Listeners,
    ) -> None:
        self._store, self._info, self._owned = store, info, owned_lanes
        self._lease, self._lost, self._listeners = lease, lost, listeners
        self._free_since: dict[int, float] = {}
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """A relay may have come or gone, or a lane be ready to go: look soon, not only in the rhythm of the lease."""
        self._nudged.set()

    async def run(self, stopping: asyncio.Event, changed: Callable[[], None]) -> None:
        """Beat until stopped. A database that is away is waited for: the deadlines run out by themselves."""
        # Here, not where the relay was made: a process may have been forked since.
        self._info = replace(self._info, pid=os.getpid(), process=presence.process())
        beat = self._lease.total_seconds() / BEATS_PER_LEASE
        due = monotonic()
        while not stopping.is_set():
            try:
                async with asyncio.timeout(beat):
                    if monotonic() >= due or await self._is_unfair():
                        due = monotonic() + beat
                        await self.beat()
            except (StoreUnavailable, TimeoutError):
                self._tell_lost(self._owned.expire(monotonic()))
            changed()
            await self._rest(due, min(beat, NUDGE_SECONDS), stopping)

    async def _rest(self, due: float, shortest: float, stopping: asyncio.Event) -> None:
        """Until the next beat is due; a nudge ends it sooner, but not at once: a busy producer nudges all the time.
        Without a lane there is a look now and then whether one is to be had."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(min(due - monotonic(), shortest), 0)):
                await stopping.wait()
        if len(self._owned) and not stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(max(due - monotonic(), 0)):
                    await self._nudged.wait()
        self._nudged.clear()

    async def beat(self) -> None:
        """One round: say that I am alive, renew what I hold, take or hand over until my share is fair."""
        await self._renew()
        await self._store.lanes.join(self._info)
        company = await self._company()
        await self._take(company)
        await self._hand_over(company.share)
        for owner in company.forgotten:
            await self._store.lanes.leave(owner)

    async def _is_unfair(self) -> bool:
        """Between two beats: is there a lane to be had for me, or one of mine for another? It writes nothing."""
        company = await self._company()
        if len(self._owned) >= company.share:
            return len(self._owned) > company.share
        # Only a hint, by this machine's clock: whether a lease is over is decided by the database's.
        now = utcnow()
        return any(
            lane.lease_until is None or lane.lease_until < now or lane.owner in company.gone for lane in company.lanes
        )

    async def _company(self) -> Company:
        lanes, relays = await self._store.lanes.all(), await self._store.lanes.relays()
        return company(lanes, relays, self._info.owner, self._lease, presence.gone_among(relays))

    async def _renew(self) -> None:
        # R10: whoever slept through a lease must not renew it, even if nobody else took the lane.
        self._tell_lost(self._owned.expire(monotonic()))
        asked = self._owned.epochs
        deadline = monotonic() + self._lease.total_seconds()
        mine = await self._store.lanes.renew(self._info.owner, asked, lease=self._lease) if asked else frozenset()
        self._tell_lost(self._owned.renewed(mine, deadline, asked, monotonic()))
        self._tell_lost(self._owned.expire(monotonic()))

    async def _take(self, company: Company) -> None:
        """Up to the share; beyond it only when lanes were left lying for a whole lease."""
        now = monotonic()
        free = [lane.lane for lane in company.lanes if lane.owner is None]
        self._free_since = {lane: self._free_since.get(lane, now) for lane in free}
        abandoned = sum(now - since > self._lease.total_seconds() for since in self._free_since.values())
        wanted = max(company.share - len(self._owned), abandoned)
        if wanted > 0:
            deadline = monotonic() + self._lease.total_seconds()
            taken = await self._store.lanes.take(
                self._info.owner, limit=wanted, lease=self._lease, lost=self._lost, gone=company.gone
            )
            self._owned.add(taken, deadline)
            if taken:
                reach("after-take")
                self._listeners(LanesTaken(owner=self._info.owner, lanes=tuple(lane.lane for lane in taken)))

    async def _hand_over(self, share: int) -> None:
        leaving = self._owned.to_hand_over(share)
        if leaving:
            await self.release(leaving)

    async def release(self, lanes: dict[int, int]) -> None:
        """Give these lanes back at once."""
        released = await self._store.lanes.release(self._info.owner, lanes)
        self._owned.drop(released)
        if released:
            self._listeners(LanesReleased(owner=self._info.owner, lanes=tuple(sorted(released))))

    async def leave(self) -> None:
        """Give everything back and say goodbye."""
        reach("before-release")
        await self.release(self._owned.epochs)
        await self._store.lanes.leave(self._info.owner)

    def _tell_lost(self, lanes: list[int]) -> None:
        if lanes:
            self._listeners(LanesLost(owner=self._info.owner, lanes=tuple(lanes)))


def company(
    lanes: Sequence[Lane], relays: Sequence[RelayInfo], me: str, lease: timedelta, gone: Collection[str]
) -> Company:
    """Who shares the lanes. Who is silent is told by the database's clock alone: it stamped all of them, me too."""
    gone = sorted(owner for owner in gone if owner != me)
    seen = {each.owner: each.seen_at for each in relays if each.seen_at is not None}
    latest = max(seen.values(), default=None)
    silent = {owner: latest - at for owner, at in seen.items() if latest is not None}
    alive = ({owner for owner, silence in silent.items() if silence < lease} - {*gone}) | {me}
    idle = seen.keys() - {lane.owner for lane in lanes} - {me}
    forgotten = sorted(owner for owner in idle if silent[owner] > FORGOTTEN_AFTER * lease)
    return Company(lanes, fair_share(len(lanes), len(alive)), gone, forgotten)
