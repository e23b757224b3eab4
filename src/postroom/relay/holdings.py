"""The lanes a relay holds, each with its own deadline by the relay's own monotonic clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from postroom.store import Lane

OTHERS_TURN = 4
"""Every so many claims, lanes that are not known to be full have their turn."""


@dataclass(slots=True)
class Held:
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


class Holdings:
    """What I hold. Everything here is decided without I/O; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
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
            self._held[lane.lane] = Held(lane.epoch, deadline)

    def renewed(self, lanes: Collection[int], deadline: float, asked: Collection[int]) -> list[int]:
        """The answer to a renewal: prolong these, give up those that were asked for and are not mine any more (R10)."""
        for lane in lanes:
            if lane in self._held:
                self._held[lane].deadline = deadline
        return self.drop(lane for lane in asked if lane not in lanes)

    def expire(self, now: float) -> list[int]:
        """Give up, for good, the lanes whose deadline has passed (R10); which they are."""
        return self.drop([lane for lane, held in self._held.items() if held.deadline <= now])

    def drop(self, lanes: Iterable[int]) -> list[int]:
        """Forget these lanes; which of them were held."""
        return [lane for lane in lanes if self._held.pop(lane, None) is not None]

    def idle(self, now: float, needed: float) -> dict[int, int]:
        """Lanes that can be claimed from: nothing in flight, and time for a whole send (R16)."""
        return {
            lane: held.epoch
            for lane, held in self._held.items()
            if not held.busy and not held.leaving and held.deadline - now > needed
        }

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

    def claimed(self, part: Mapping[int, int], counts: Mapping[int, int], most: int) -> None:
        """What a claim found: so many messages in each of these lanes, *most* in one being all that it looks for."""
        for lane, epoch in part.items():
            held = self._held.get(lane)
            if held is not None and held.epoch == epoch:
                held.full = counts.get(lane, 0) >= most
                held.busy = lane in counts

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
