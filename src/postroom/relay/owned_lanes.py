"""The lanes a relay holds, each with its own deadline by the relay's own monotonic clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from postroom.contracts.lanes import Lane
from postroom.contracts.outbox import Claim, per_lane

OTHERS_TURN = 4
"""Every so many claims, lanes that are not known to be full have their turn."""
REST_SECONDS = 0.05
"""So long a lane in which nothing is left is not looked at, while there are others that are known to be full."""


@dataclass(slots=True)
class OwnedLane:
    """One lane of mine."""

    epoch: int
    deadline: float
    """Monotonic seconds, taken before the call that leased it: past it, nothing is sent (R9)."""
    busy: bool = False
    """A claim of it is in flight."""
    leaving: bool = False
    """It goes to another relay as soon as it is idle."""
    turn: int = 0
    """When it was last claimed from: the higher, the later."""
    full: bool = False
    """The last claim took all it might from it: there is more."""
    rests_until: float = 0.0
    """The last claim left nothing in it: until then it is not looked at beside lanes that are full."""


class OwnedLanes:
    """What I hold. Everything here is decided without I/O; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._held: dict[int, OwnedLane] = {}
        self._turns = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def epochs(self) -> dict[int, int]:
        """Every lane of mine, with its epoch."""
        return {lane: held.epoch for lane, held in self._held.items()}

    def add(self, lanes: Iterable[Lane], deadline: float) -> None:
        """Lanes just taken. An older hold on one is forgotten with its batches (R7)."""
        for lane in lanes:
            self._held[lane.lane] = OwnedLane(lane.epoch, deadline)

    def renewed(self, lanes: Collection[int], deadline: float, asked: Collection[int], now: float) -> list[int]:
        """The answer to a renewal: prolong these, give up those that were asked for and are not mine any more (R10). Which
        lanes were given up.

        An answer that comes past a lane's deadline prolongs nothing: its batch was dropped meanwhile, or nearly so, and its
        claim is still in the table."""
        late = self.expire(now)
        for lane in lanes:
            if lane in self._held:
                self._held[lane].deadline = deadline
        return late + self.drop(lane for lane in asked if lane not in lanes)

    def expire(self, now: float) -> list[int]:
        """Give up, for good, the lanes whose deadline has passed (R10); which they are."""
        return self.drop([lane for lane, held in self._held.items() if held.deadline <= now])

    def drop(self, lanes: Iterable[int]) -> list[int]:
        """Forget these lanes; which of them were held."""
        return [lane for lane in lanes if self._held.pop(lane, None) is not None]

    @property
    def is_full(self) -> bool:
        """Is there a lane, in flight or not, that is known to hold more?"""
        return any(held.full for held in self._held.values())

    def worth_a_look(self, now: float, needed: float) -> dict[int, int]:
        """Lanes that can be claimed from, and have rested where others are full."""
        return self.rested(self.idle(now, needed), now)

    def idle(self, now: float, needed: float) -> dict[int, int]:
        """Lanes that can be claimed from: nothing in flight, and time for a whole send (R16)."""
        return {
            lane: held.epoch
            for lane, held in self._held.items()
            if not held.busy and not held.leaving and held.deadline - now > needed
        }

    def rested(self, lanes: Mapping[int, int], now: float) -> dict[int, int]:
        """Of these lanes, those that are worth a look: all of them, unless others are full. To look into an empty lane
        is not free: it may hold many messages that cannot move, or the remains of many that are gone."""
        if not self.is_full:
            return dict(lanes)
        return {
            lane: epoch for lane, epoch in lanes.items() if (held := self._held.get(lane)) and held.rests_until <= now
        }

    def next_look(self, now: float) -> float:
        """In how many seconds a lane has rested enough; 0 when none does."""
        rests = [held.rests_until - now for held in self._held.values() if held.rests_until > now and not held.busy]
        return min(rests, default=0.0)

    def part_of(self, lanes: Mapping[int, int], room: int) -> dict[int, int]:
        """Of these lanes, idle a moment ago and still mine, what one of so many batches should claim from: those that
        waited longest.

        A claim is shared out among its lanes, so those that are known to be full are claimed from by themselves: many
        empty ones beside them would leave it half empty. Every few turns it is the others' turn."""
        self._turns += 1
        mine = {lane: held for lane, epoch in lanes.items() if (held := self._held.get(lane)) and held.epoch == epoch}
        full = [lane for lane, held in mine.items() if held.full]
        rest = [lane for lane, held in mine.items() if not held.full]
        chosen = full if full and (not rest or self._turns % OTHERS_TURN) else rest
        some = -(-len(chosen) // room) if len(chosen) > room else len(chosen)
        part = sorted(chosen, key=lambda lane: mine[lane].turn)[:some]
        for lane in part:
            mine[lane].turn = self._turns
        return {lane: lanes[lane] for lane in part}

    def still_mine(self, lanes: Mapping[int, int]) -> dict[int, int]:
        """Of these lanes, those that are mine at that epoch, with nothing in flight."""
        mine = {lane: self._held.get(lane) for lane in lanes}
        return {lane: held.epoch for lane, held in mine.items() if held and held.epoch == lanes[lane] and not held.busy}

    def reserve(self, part: Mapping[int, int]) -> None:
        """A claim from these lanes is asked for: no other may be, until it is answered (R11)."""
        for lane in part:
            self._held[lane].busy = True

    def claimed(self, part: Mapping[int, int], claims: Sequence[Claim], limit: int, begin: float, now: float) -> None:
        """What a claim of at most *limit* messages, asked for at *begin*, found in these lanes."""
        found = {claim.lane: len(claim.messages) for claim in claims}
        emptied = {claim.lane for claim in claims if claim.emptied}
        # Of a claim that is full, a lane may have got less than its part: another one's messages may have been far away.
        most = 1 if sum(found.values()) >= limit else per_lane(limit, len(part))
        # What takes long is not looked at all the time.
        rested = now + max(REST_SECONDS, 2 * (now - begin))
        for lane, epoch in part.items():
            held = self._held.get(lane)
            if held is not None and held.epoch == epoch:
                held.full = found.get(lane, 0) >= most and lane not in emptied
                held.busy = lane in found
                held.rests_until = 0.0 if held.busy and lane not in emptied else rested

    def may_send(self, lane: int, epoch: int, now: float, needed: float) -> bool:
        """Is this lane mine at that epoch, for long enough to send?"""
        held = self._held.get(lane)
        return held is not None and held.epoch == epoch and held.deadline - now > needed

    def settled(self, lanes: Mapping[int, int]) -> None:
        """Nothing of these lanes is in flight any more."""
        for lane, epoch in lanes.items():
            held = self._held.get(lane)
            if held is not None and held.epoch == epoch:
                held.busy = False

    @property
    def is_leaving(self) -> bool:
        """Is there a lane that goes to another relay and has become idle?"""
        return any(held.leaving and not held.busy for held in self._held.values())

    def to_hand_over(self, share: int) -> dict[int, int]:
        """Mark what is above the fair share as leaving; which of the leaving ones are idle now."""
        surplus = len(self._held) - share
        for held in self._held.values():
            held.leaving = False
        for held in sorted(self._held.values(), key=lambda held: held.busy)[: max(surplus, 0)]:
            held.leaving = True
        return {lane: held.epoch for lane, held in self._held.items() if held.leaving and not held.busy}


def fair_share(lanes: int, relays: int) -> int:
    """How many lanes each of so many relays should hold.

    >>> fair_share(64, 3)
    22
    """
    return -(-lanes // max(relays, 1))
