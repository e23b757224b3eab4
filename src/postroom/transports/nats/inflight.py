"""What a receiver has in hand: what came, what was given on, what was refused; and what may be given next. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.contracts.transport import Delivery


@dataclass(slots=True, eq=False)
class InFlightMessage:
    """A message that is ours until we say what became of it."""

    place: int
    """In the stream."""
    reply: str
    """Where the server wants to hear of it; the newest, if it came again while it was held."""
    delivery: Delivery | None = None

    @property
    def key(self) -> str | None:
        return None if self.delivery is None else self.delivery.message.key


class InFlight:
    """Everything of one receiver on one connection, by the place in the stream."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self.waiting: dict[int, InFlightMessage] = {}
        self.given: dict[int, InFlightMessage] = {}
        self.refused: dict[int, tuple[str | None, float]] = {}
        """Sent back, to come again: the key, and when."""
        self.settled = 0
        """How many were told of to the server, as handled or not."""

    @property
    def mine(self) -> int:
        """How many the server counts as ours."""
        return len(self.waiting) + len(self.given)

    @property
    def holds(self) -> list[InFlightMessage]:
        """All of them, in the stream's order."""
        held = self.waiting | self.given
        return [held[place] for place in sorted(held)]

    def arrive(self, hold: InFlightMessage) -> None:
        """It came; perhaps again."""
        self.refused.pop(hold.place, None)
        if (held := self.given.get(hold.place)) is not None:
            # The server gave us up for a moment. It is being handled: whoever handles it need not know.
            held.reply = hold.reply
        else:
            self.waiting[hold.place] = hold

    def take(self, limit: int) -> list[InFlightMessage]:
        """Up to so many, in the stream's order; none behind a refused one of its key, and no more than the prefetch."""
        room = min(limit, self._prefetch - len(self.given))
        taken: list[InFlightMessage] = []
        for place in sorted(self.waiting):
            if len(taken) >= room:
                break
            if not self._is_behind_a_refused(self.waiting[place]):
                taken.append(self.waiting[place])
        for hold in taken:
            self.given[hold.place] = self.waiting.pop(hold.place)
        return taken

    def settle(self, hold: InFlightMessage) -> bool:
        """It was told of to the server; False when it was not ours any more."""
        if self.given.get(hold.place) is not hold:
            return False
        del self.given[hold.place]
        self.settled += 1
        return True

    def refuse(self, hold: InFlightMessage, due: float) -> bool:
        """The same, and it comes again."""
        if not self.settle(hold):
            return False
        self.refused[hold.place] = (hold.key, due)
        return True

    def give_back(self) -> list[InFlightMessage]:
        """What nobody was given, for others; and what was refused is theirs as well."""
        back = [self.waiting[place] for place in sorted(self.waiting)]
        self.settled += len(back)
        self.waiting.clear()
        self.refused.clear()
        return back

    def is_overdue(self, now: float) -> bool:
        """Should something refused have come by now?"""
        return any(due < now for _, due in self.refused.values())

    def _is_behind_a_refused(self, hold: InFlightMessage) -> bool:
        key = hold.key
        return key is not None and any(place < hold.place and key == of for place, (of, _) in self.refused.items())
