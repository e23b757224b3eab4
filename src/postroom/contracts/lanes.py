"""Which relay may send which messages.

Keys are spread over *lanes*. A relay takes a lane by lease and gets its *epoch*, a number that only grows. The next
owner gets the next epoch, and what the earlier owner still had in flight is let go. The rules R1 … R26 behind
each method are explained in `docs/explain/lanes.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from postroom.contracts.outbox import Buried, Retry

OnLeaseLost: TypeAlias = Callable[[int], Retry | Buried]
"""What to do with a message that was in flight when its relay lost the lane, given the attempts including this one."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A slice of the keys, and who may send it."""

    lane: int
    epoch: int
    owner: str | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayInfo:
    """A relay that says it is alive. `owner` is unique per process start; `name` is what a person called it."""

    owner: str
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    process: str = ""
    """Which process it is, beyond its pid: machine start, namespaces, time of start. Empty: unknown (R5)."""
    seen_at: datetime | None = None


class LaneStore(Protocol):
    """Who may send what."""

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        """Say that this relay is alive. Saying it again refreshes it."""

    async def leave(self, owner: str) -> None:
        """Say that this relay is gone. Its lanes are not touched: release them first."""

    async def relays(self) -> Sequence[RelayInfo]:
        """Return every relay on record, with the moment it was last seen."""

    async def all(self) -> Sequence[Lane]:
        """Return every lane, in order."""

    async def take(
        self,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        lost: OnLeaseLost,
        gone: Collection[str] = (),
        now: datetime | None = None,
    ) -> Sequence[Lane]:
        """Take up to *limit* lanes that are free, whose lease ran out, or whose owner is among those known to be *gone*
        (R5); each gets the next epoch.

        What an earlier owner still had in flight there is let go in the same transaction: one attempt is added, and
        *lost* says whether it is retried or buried (R6). A key with several such messages waits as its first one does.

        A message lost this way travels only with other suspects, and alone from the second loss on (R8). It is buried only
        if it was alone when it was lost, in a claim that says so: a message lost with others keeps its last attempt."""

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        """Prolong the leases of these lanes (lane to epoch); return those that this owner still has, at that epoch (R9)."""

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        """Give these lanes back, at once free for others; return those that were.

        A lane with a claim in flight, or of another owner or epoch, stays as it is (R24)."""
