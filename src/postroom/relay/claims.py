"""Where a relay's batches come from: a source of claims, and the one that claims from the lanes of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from postroom.clock import monotonic
from postroom.config.values import RelayConfig
from postroom.contracts.lanes import OnLeaseLost
from postroom.contracts.ops import OPEN
from postroom.contracts.outbox import Claim
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.events import BatchClaimed, LanesLost, Listeners
from postroom.relay.owned_lanes import OwnedLanes
from postroom.relay.settler import within
from postroom.relay.suspects import SortedOut, Suspects
from postroom.relay.wakeup import Backoff, watch
from postroom.telemetry.failpoints import reach

CLAIMS_AT_ONCE = 2
"""How many claims, of different lanes, are asked for at once while messages flow."""
NOTHING = SortedOut([], [], [])


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a source has set aside for one batch, from before its claim until after its settle."""

    lanes: Mapping[int, int] = field(default_factory=dict)
    """The lanes to claim from, with their epochs. No other turn has them (R11)."""
    suspects: bool = False
    """It is the turn of messages that were in flight when a relay died, of which one batch is under way at a time (R8)."""
    alone: bool = False
    """It is the last try of one message: nothing else may be in flight in this process meanwhile (R8)."""


class ClaimSource(Protocol):
    """Supplies the batches that a relay carries. `LaneClaims` claims them from the lanes of a store.

    The relay asks for the `next` turn, gives it a task, and there calls `claim`, sends what was claimed, and says `settled`;
    when the task is over, whatever became of it, it says `ended`. Several turns may be under way at once."""

    @property
    def next_is_alone(self) -> bool:
        """Must nothing else be in flight while the next batch is?"""

    @property
    def longest_look(self) -> float:
        """How many seconds there are between two looks for messages, at most."""

    async def run(self) -> None:
        """Do what must be done beside the claims, until cancelled: listen for commits, or read."""

    async def next(self, room: int) -> Turn | None:
        """Set aside what the next batch comes from; None: there is nothing now. So many batches more have room (1 or more).

        Raises StoreUnavailable while the store is away."""

    async def claim(self, turn: Turn, limit: int) -> SortedOut:
        """Claim at most so many messages of this turn. Nothing is claimed while the store is away."""

    def is_mine(self, claim: Claim, seconds: float = 0.0) -> bool:
        """Does this claim belong to the relay for longer than so many seconds more? Else nothing of it may be sent (R16)."""

    def settled(self, claims: Sequence[Claim], lost: Sequence[int] | None) -> None:
        """These claims are settled, but for those in the lanes that were *lost*; None: it is unknown whether they are."""

    def ended(self, turn: Turn, *, cancelled: bool) -> None:
        """The task that had this turn is over. *cancelled*: in the middle, and it is unknown where."""

    def look(self) -> None:
        """Something may have been committed: look for it at once."""

    def next_look(self, now: float) -> float:
        """Return in how many seconds the next look makes sense."""

    async def is_drained(self) -> bool:
        """Can nothing move without a person?"""


class LaneClaims:
    """Claims from the lanes that a relay owns in a store."""

    def __init__(
        self,
        store: Store,
        owner: str,
        owned: OwnedLanes,
        config: RelayConfig,
        lost: OnLeaseLost,
        listeners: Listeners,
        *,
        send_seconds: float,
        changed: Callable[[], None],
        nudge: Callable[[], None],
    ) -> None:
        """*changed* tells the relay to ask again; *nudge* tells its heartbeat to look at the lanes soon."""
        self._store, self._owner, self._owned = store, owner, owned
        self._suspects, self._listeners = Suspects(lost), listeners
        self._send_seconds, self._patience = send_seconds, config.lease / 2
        self._changed, self._nudge = changed, nudge
        self._poll = config.poll.total_seconds()
        self._idle = Backoff(first=0.002, most=self._poll)
        self._claiming = 0
        self._resting_until = 0.0
        self._doubtful: set[int] = set()
        """Lanes of which something was asked for, and no answer came."""

    # ── when to look ──

    async def run(self) -> None:
        """Listen to the store's hints, until cancelled."""
        await watch(self._store, self._woken, self._unwatched)

    def _woken(self) -> None:
        """Something was committed, or a relay came or went: look at once, from short waits on."""
        # What the store tells of need not be asked for so often.
        self._idle.most = 2 * self._poll
        self.look()

    def _unwatched(self) -> None:
        self._idle.most = self._poll

    def look(self) -> None:
        """Look at once, from short waits on."""
        self._idle.shorten()
        self._resting_until = 0.0
        self._changed()
        self._nudge()

    def _rest(self) -> None:
        """There was nothing, or no answer: look again after a while, a longer one each time."""
        self._resting_until = monotonic() + self._idle.next()

    def next_look(self, now: float) -> float:
        """Return in how many seconds this rest is over, or a lane has rested enough; else how long a poll waits."""
        return max(self._resting_until - now, 0) or self._owned.next_look(now) or self._poll

    @property
    def longest_look(self) -> float:
        return self._idle.most

    async def is_drained(self) -> bool:
        """Is all that is left parked?"""
        counts = await self._store.ops.counts()
        return sum(counts.by_status.get(status, 0) for status in OPEN) == counts.parked

    # ── whose turn it is ──

    @property
    def next_is_alone(self) -> bool:
        return self._suspects.last_try is not None

    async def next(self, room: int) -> Turn | None:
        """Reserve lanes for a claim, if there are any that are worth a look.

        After an empty look the next one is a peek: an idle relay should cost next to nothing."""
        now = monotonic()
        if now < self._resting_until:
            return None
        if self._suspects.last_try is not None:
            return self._last_try(now)
        lanes = self._owned.worth_a_look(now, self._send_seconds)
        if not lanes or self._claiming >= self._claims_at_once:
            return None
        if self._idle.waited and not await within(self._patience, self._store.outbox.peek(lanes)):
            self._rest()
            return None
        # Lanes may have been lost while the peek was answered.
        mine = self._owned.still_mine(lanes)
        if suspects := self._suspects.turn(mine, room):
            return self._reserve(Turn(suspects, suspects=True))
        return self._reserve(Turn(self._part_of(self._suspects.others(mine), room)))

    def _last_try(self, now: float) -> Turn | None:
        """The try whose loss would bury a message: in this process it must be the only one, so that no other can be to blame
        (R8)."""
        lane, self._suspects.last_try = self._suspects.last_try, None
        idle = self._owned.idle(now, self._send_seconds)
        return self._reserve(Turn({each: epoch for each, epoch in idle.items() if each == lane}, alone=True))

    def _part_of(self, lanes: dict[int, int], room: int) -> dict[int, int]:
        """Two claims never share a lane: leave some for the other turns. But where only little comes, it may be in any lane."""
        return lanes if self._idle.waited else self._owned.part_of(lanes, room)

    @property
    def _claims_at_once(self) -> int:
        """Two while messages flow, so that the database is not waited for; one to look whether there are any."""
        return 1 if self._idle.waited else CLAIMS_AT_ONCE

    def _reserve(self, turn: Turn) -> Turn | None:
        """Keep the lanes of this turn from others; None if it has none."""
        if not turn.lanes:
            return None
        self._owned.reserve(turn.lanes)
        self._suspects.under_way |= turn.suspects
        self._claiming += 1
        return turn

    # ── a turn, from its claim to its end ──

    async def claim(self, turn: Turn, limit: int) -> SortedOut:
        """Claim from the lanes of this turn, and say what of it goes now. Suspects go in halves, and their last try alone."""
        if turn.alone:
            limit = 1
        elif turn.suspects:
            limit = -(-limit // 2)
        try:
            claims = await self._claimed(turn, limit)
        except StoreUnavailable:
            self._rest()
            return NOTHING
        finally:
            self._claiming -= 1
            self._changed()
        found = self._suspects.sort_out(turn.lanes, claims, theirs=turn.suspects)
        return SortedOut([], list(claims), []) if turn.alone else found

    async def _claimed(self, turn: Turn, limit: int) -> Sequence[Claim]:
        begin, part = monotonic(), turn.lanes
        claims: Sequence[Claim] = []
        try:
            # R22: what is doubtful is looked into behind the lock of the lane, which is reserved for this claim.
            doubtful = self._doubtful & part.keys()
            asked = self._store.outbox.claim(self._owner, part, limit=limit, doubtful=doubtful, alone=turn.alone)
            claims = await within(self._patience, asked)
            self._doubtful -= doubtful
        except StoreUnavailable:
            self._doubtful |= part.keys()
            raise
        finally:
            self._owned.claimed(part, claims, limit, begin, monotonic())
        if not claims:
            # While others are full only these lanes rest, not the relay.
            if not self._owned.is_full:
                self._rest()
            return []
        self._idle.reset()
        reach("after-claim")
        count = sum(len(claim.messages) for claim in claims)
        self._listeners(BatchClaimed(count=count, lanes=len(claims), seconds=monotonic() - begin))
        return claims

    def is_mine(self, claim: Claim, seconds: float = 0.0) -> bool:
        return self._owned.may_send(claim.lane, claim.epoch, monotonic(), seconds)

    def settled(self, claims: Sequence[Claim], lost: Sequence[int] | None) -> None:
        """Let go of the lanes of these claims."""
        if lost is None:
            # R10: it may have been carried out, or not, or be on its way.
            self._doubtful |= {claim.lane for claim in claims}
        if lost:
            self._owned.drop(lost)
            self._listeners(LanesLost(owner=self._owner, lanes=tuple(lost)))
        self._owned.settled({claim.lane: claim.epoch for claim in claims})
        if self._owned.is_leaving:
            self._nudge()

    def ended(self, turn: Turn, *, cancelled: bool) -> None:
        if turn.suspects:
            self._suspects.under_way = False
        if cancelled:
            # R26: by whose code, and where it stood, is unknown. Its lanes are looked into, and go on.
            self._doubtful |= turn.lanes.keys()
            self._owned.settled(turn.lanes)
