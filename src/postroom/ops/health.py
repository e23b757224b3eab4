"""Whether an outbox is looked after: every lane has a relay that lives, and the store answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.store import Store
from postroom.durations import format_duration
from postroom.errors import StoreError
from postroom.ops.status import RelaySnapshot, look_at_relays

TIMEOUT = timedelta(seconds=2)
"""A store that needs longer does not answer."""
FRESH_SECONDS = 1.0
"""For so long an answer is given again: probes must cost nothing."""
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
                return ready(await look_at_relays(self._store))
        except TimeoutError:
            return Health(ok=False, why=f"The store did not answer within {format_duration(self._timeout)}.")
        except StoreError as exc:
            return Health(ok=False, why=str(exc))


def ready(sending: RelaySnapshot) -> Health:
    """Return whether each lane has a live owner, with a sentence that says how many have none."""
    lanes, orphans = len(sending.lanes), sending.orphans
    if not orphans:
        return Health(ok=True, why=f"All {lanes:,} lanes have a live relay.")
    named = ", ".join(map(str, orphans[:SHOWN]))
    more = f" and {len(orphans) - SHOWN:,} more" if len(orphans) > SHOWN else ""
    have = "has" if len(orphans) == 1 else "have"
    return Health(ok=False, why=f"{len(orphans):,} of {lanes:,} lanes {have} no live relay: {named}{more}.")
