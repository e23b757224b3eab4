"""What one channel was given and has not acknowledged: in order, with what is to be handed out again and when. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from postroom.contracts.transport import Delivery


@dataclass(slots=True)
class Held:
    """A message that the broker counts as ours."""

    delivery: Delivery
    due: float = float("-inf")
    """When it may be handed out."""
    turn: int = 0
    """How often it was handed out here."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a delivery of ours is known by: whose shelf, which message on it, and handed out for which time."""

    shelf: InFlight
    tag: int
    turn: int


class InFlight:
    """The messages of one channel, by delivery tag."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        """All of them, in the order they came."""
        self._waiting: dict[int, Held] = {}
        """Those that are not handed out, in the same order."""

    def arrive(self, tag: int, delivery: Delivery) -> None:
        """The broker gave us one more."""
        self._held[tag] = self._waiting[tag] = Held(delivery)

    def take(self, limit: int, now: float) -> list[Delivery]:
        """The next messages to hand out: of no key anything while an earlier one waits for its time."""
        blocked, taken = set[str | None](), list[tuple[int, Held]]()
        for tag, held in self._waiting.items():
            if len(taken) == limit:
                break
            key = held.delivery.message.key
            if held.due > now or (key is not None and key in blocked):
                blocked.add(key)
            else:
                taken.append((tag, held))
        for tag, held in taken:
            del self._waiting[tag]
            held.turn += 1
        return [self._handed(tag, held) for tag, held in taken]

    def next_due(self, now: float) -> float | None:
        """When the first of those that wait for their time may be handed out. What waits for these has no time of its own."""
        return min((held.due for held in self._waiting.values() if held.due > now), default=None)

    def is_out(self, token: Token) -> bool:
        """Is this one handed out, and neither back nor done?"""
        held = self._held.get(token.tag) if token.shelf is self else None
        return held is not None and held.turn == token.turn and token.tag not in self._waiting

    def put_back(self, token: Token, due: float) -> None:
        """It is to be handed out again, then, at its old place."""
        held = self._held[token.tag]
        held.due = due
        self._waiting = dict(sorted([*self._waiting.items(), (token.tag, held)]))

    def settle(self, tags: Collection[int]) -> list[tuple[int, bool]]:
        """These are done: the tags to acknowledge, each with whether all before it are meant as well."""
        done = set(tags)
        together = 0
        last = 0
        for tag in self._held:
            if tag not in done:
                break
            together, last = together + 1, tag
        for tag in done:
            del self._held[tag]
        if together < 2:
            return [(tag, False) for tag in sorted(done)]
        return [(last, True), *((tag, False) for tag in sorted(done) if tag > last)]

    def _handed(self, tag: int, held: Held) -> Delivery:
        again = held.delivery.redelivered + held.turn - 1
        return replace(held.delivery, redelivered=again, token=Token(self, tag, held.turn))
