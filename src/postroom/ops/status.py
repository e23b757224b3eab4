"""The state of an outbox at one moment: how many messages are where, and who sends them.

`look` asks the store; all else here is derived from the answers, without another question. The command line, `doctor`, the
health port and Django's admin read this model, and so does whatever shows the state of an outbox later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from postroom.clock import utcnow
from postroom.config.values import RelayConfig
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import OPEN, Counts
from postroom.contracts.store import Store
from postroom.relay.presence import gone_among

SILENT_AFTER = 2 / 3
"""A relay is heard of each third of its lease: after two of them it is silent, though its lease still runs."""
PATIENCE = RelayConfig().lease
"""How long a relay without lanes may be silent and still count as alive, unless the caller says otherwise."""

RelayState: TypeAlias = Literal["alive", "silent", "gone"]
"""`silent`: not heard of lately. `gone`: its process is known to be no more, or it is not on record at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayShare:
    """An owner of lanes, or a relay that has none: its part of the work."""

    owner: str
    relay: RelayInfo | None
    """None: the owner is not on record. It died, and its lanes wait for their leases to end."""
    state: RelayState
    lanes: int
    """How many lanes it owns."""
    free_in: timedelta | None
    """When the lease of its last lane ends, from now. None: it owns no lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySnapshot:
    """Who sends: the lanes and the relays, at one moment."""

    lanes: Sequence[Lane]
    relays: Sequence[RelayInfo]
    now: datetime
    gone: frozenset[str] = frozenset()
    """Owners whose process was on this machine, and is no more."""
    patience: timedelta = PATIENCE
    """A relay without lanes that was silent for longer is not alive."""

    @property
    def owned(self) -> Counter[str]:
        """How many lanes each owner has."""
        return Counter(lane.owner for lane in self.lanes if lane.owner is not None)

    @property
    def orphans(self) -> Sequence[int]:
        """The numbers of the lanes that have no live owner."""
        seen = self._seen
        return [lane.lane for lane in self.lanes if not self._has_live_owner(lane, seen.get(lane.owner or ""))]

    @property
    def shares(self) -> Sequence[RelayShare]:
        """Every relay on record, and then every owner that is on none, each with its lanes."""
        owned = self.owned
        on_record = [self._share(relay.owner, relay, owned.pop(relay.owner, 0)) for relay in self.relays]
        return on_record + [self._share(owner, None, lanes) for owner, lanes in sorted(owned.items())]

    def has_live_owner(self, lane: Lane) -> bool:
        """Return whether the lease of this lane runs, and its owner was heard of lately and is not gone."""
        return self._has_live_owner(lane, self._seen.get(lane.owner or ""))

    def is_alive(self, relay: RelayInfo) -> bool:
        """Return whether this relay was heard of lately: with lanes, by its own lease; without, by our patience.

        A relay whose process is gone is not alive."""
        if relay.seen_at is None or relay.owner in self.gone:
            return False
        if lanes := self._lanes_of(relay.owner):
            return any(self._has_live_owner(lane, relay.seen_at) for lane in lanes)
        return self.now - relay.seen_at <= self.patience

    def state(self, relay: RelayInfo) -> RelayState:
        """Return what this relay is, in a word."""
        if relay.owner in self.gone:
            return "gone"
        return "alive" if self.is_alive(relay) else "silent"

    @property
    def _seen(self) -> dict[str, datetime | None]:
        return {relay.owner: relay.seen_at for relay in self.relays}

    def _lanes_of(self, owner: str) -> Sequence[Lane]:
        return [lane for lane in self.lanes if lane.owner == owner]

    def _has_live_owner(self, lane: Lane, heard: datetime | None) -> bool:
        if lane.owner is None or lane.owner in self.gone or lane.lease_until is None or lane.lease_until <= self.now:
            return False
        # Both moments are of one beat, so what lies between them is that relay's lease, whatever ours is.
        return heard is None or self.now < heard + SILENT_AFTER * (lane.lease_until - heard)

    def _share(self, owner: str, relay: RelayInfo | None, lanes: int) -> RelayShare:
        leases = [lane.lease_until for lane in self._lanes_of(owner) if lane.lease_until is not None]
        return RelayShare(
            owner=owner,
            relay=relay,
            state="gone" if relay is None else self.state(relay),
            lanes=lanes,
            free_in=max(max(leases) - self.now, timedelta(0)) if leases else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSnapshot(RelaySnapshot):
    """All of it: the messages by status, and who sends them."""

    counts: Counts

    @property
    def open(self) -> int:
        """How many messages are still to be settled."""
        return sum(self.counts.by_status.get(status, 0) for status in OPEN)

    @property
    def waiting(self) -> int:
        """How many open messages wait for a relay: all but those that wait for a person, behind a dead one."""
        return self.open - self.counts.parked

    @property
    def dead(self) -> int:
        """How many messages were given up, and wait for a person."""
        return self.counts.by_status.get("dead", 0)

    @property
    def lag(self) -> timedelta:
        """The age of the oldest open message that is due; zero when there is none."""
        return self.counts.lag


async def look(store: Store, *, patience: timedelta = PATIENCE, now: datetime | None = None) -> StatusSnapshot:
    """Ask the store for its state. *now* is the moment to judge relays by; it defaults to the present one."""
    sending = await look_at_relays(store, patience=patience, now=now)
    counts = await store.ops.counts(now=now)
    return StatusSnapshot(
        counts=counts,
        lanes=sending.lanes,
        relays=sending.relays,
        now=sending.now,
        gone=sending.gone,
        patience=sending.patience,
    )


async def look_at_relays(store: Store, *, patience: timedelta = PATIENCE, now: datetime | None = None) -> RelaySnapshot:
    """Ask the store for its lanes and relays alone: counting messages costs more, and a probe must cost nothing."""
    # The lanes first: a relay that comes in between is then one without lanes, and not an owner that is on no record.
    lanes, relays = await store.lanes.all(), await store.lanes.relays()
    return RelaySnapshot(lanes=lanes, relays=relays, now=now or utcnow(), gone=gone_among(relays), patience=patience)
