"""The lanes a relay holds, each with its own deadline by the relay's own monotonic clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from postroom.store import Lane


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
        """Of these idle lanes, what one of so many batches should claim from: those that waited longest."""
        self._turns += 1
        some = -(-len(lanes) // room) if len(lanes) > room else len(lanes)
        part = sorted(lanes, key=lambda lane: self._held[lane].turn)[:some]
        for lane in part:
            self._held[lane].turn = self._turns
        return {lane: lanes[lane] for lane in part}

    def may_send(self, lane: int, epoch: int, now: float, needed: float) -> bool:
        """Is this lane mine at that epoch, for long enough to send?"""
        held = self._held.get(lane)
        return held is not None and held.epoch == epoch and held.deadline - now > needed

    def mark(self, lanes: Mapping[int, int], *, busy: bool) -> None:
        """A claim of these lanes is in flight, or is not any more."""
        for lane, epoch in lanes.items():
            held = self._held.get(lane)
            if held is not None and held.epoch == epoch:
                held.busy = busy

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
