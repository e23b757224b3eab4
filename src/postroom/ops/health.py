"""Whether an outbox is looked after: every lane has a relay that lives, and the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.clock import monotonic, utcnow
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.store import Store
from postroom.durations import format_duration
from postroom.errors import StoreError
from postroom.relay.presence import gone_among

TIMEOUT = timedelta(seconds=2)
"""A store that needs longer does not answer."""
FRESH_SECONDS = 1.0
"""For so long an answer is given again: probes must cost nothing."""
SILENT_AFTER = 2 / 3
"""A relay is heard of each third of its lease: after two of them it is silent, though its lease still runs."""
SHOWN = 8
"""How many lanes a sentence names."""


@dataclass(frozen=True, slots=True)
class Health:
    """How it is, in a sentence."""

    ok: bool
    why: str


class Readiness:
    """Asks a store whether every lane has a live owner, at most once in `FRESH_SECONDS`.

    Give it a store of its own: it must not wait for its turn behind the relay's work."""

    def __init__(self, store: Store, *, timeout: timedelta = TIMEOUT) -> None:
        self._store, self._timeout = store, timeout
        self._answer = Health(ok=False, why="not asked yet")
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def __call__(self) -> Health:
        """The answer, a moment old at most. It never raises for what a store does."""
        async with self._asking:
            if monotonic() >= self._until:
                self._answer = await self._ask()
                self._until = monotonic() + FRESH_SECONDS
            return self._answer

    async def _ask(self) -> Health:
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                lanes, relays = await self._store.lanes.all(), await self._store.lanes.relays()
                return ready(lanes, relays, utcnow(), gone=gone_among(relays))
        except TimeoutError:
            return Health(ok=False, why=f"The store did not answer within {format_duration(self._timeout)}.")
        except StoreError as exc:
            return Health(ok=False, why=str(exc))


def ready(lanes: Sequence[Lane], relays: Iterable[RelayInfo], now: datetime, *, gone: Collection[str] = ()) -> Health:
    """Whether each of these lanes has a live owner at this moment. *gone* are owners whose process is known to be no more."""
    seen = {relay.owner: relay.seen_at for relay in relays}
    orphans = [lane.lane for lane in lanes if lane.owner in gone or not has_live_owner(lane, seen, now)]
    if not orphans:
        return Health(ok=True, why=f"All {len(lanes):,} lanes have a live relay.")
    named = ", ".join(map(str, orphans[:SHOWN]))
    more = f" and {len(orphans) - SHOWN:,} more" if len(orphans) > SHOWN else ""
    have = "has" if len(orphans) == 1 else "have"
    return Health(ok=False, why=f"{len(orphans):,} of {len(lanes):,} lanes {have} no live relay: {named}{more}.")


def has_live_owner(lane: Lane, seen: Mapping[str, datetime | None], now: datetime) -> bool:
    """Does the lease of this lane run, and was its owner heard of lately? *seen* says when, by owner."""
    if lane.owner is None or lane.lease_until is None or lane.lease_until <= now:
        return False
    heard = seen.get(lane.owner)
    # Both moments are of one beat, so what lies between them is that relay's lease, whatever ours is.
    return heard is None or now < heard + SILENT_AFTER * (lane.lease_until - heard)
