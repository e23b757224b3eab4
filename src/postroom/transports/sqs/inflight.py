"""What a receiver has in hand, and until when SQS keeps it from others. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RENEW_AFTER = 1 / 3
"""Of its time, after which a hold is prolonged: two more tries fit in before it runs out."""
TRUST = 0.9
"""Of the time that SQS gives: it began to run before the message was here."""


@dataclass(slots=True, eq=False)
class InFlightMessage:
    """One message in hand."""

    handle: str
    """What SQS wants to hear when something is done with it."""
    group: str | None
    """Its group, in a FIFO queue."""
    renewed: float
    until: float
    """By our clock; then others may get it."""


class InFlight:
    """All of them, in the order they came."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._all: dict[InFlightMessage, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[InFlightMessage]:
        return iter(list(self._all))

    def take(self, handle: str, group: str | None, now: float) -> InFlightMessage:
        """A message came into our hands."""
        hold = InFlightMessage(handle, group, now, now + TRUST * self._seconds)
        self._all[hold] = None
        return hold

    def has(self, hold: InFlightMessage, now: float) -> bool:
        """Is it ours still?"""
        return hold in self._all and now < hold.until

    def drop(self, hold: InFlightMessage) -> None:
        """It is not in our hands any more."""
        self._all.pop(hold, None)

    def clear(self) -> list[InFlightMessage]:
        """Nothing is; what it was."""
        dropped, self._all = list(self._all), {}
        return dropped

    def with_what_is_behind(self, hold: InFlightMessage) -> list[InFlightMessage]:
        """It, if it is here, and what came after it of its group: without it, that would be out of order."""
        if hold.group is None:
            return [hold] if hold in self._all else []
        of_group = [each for each in self._all if each.group == hold.group]
        return of_group[of_group.index(hold) :] if hold in of_group else []

    def due(self, now: float) -> list[InFlightMessage]:
        """Those to be prolonged."""
        return [each for each in self._all if now - each.renewed >= RENEW_AFTER * self._seconds]

    def run_out(self, now: float) -> list[InFlightMessage]:
        """Those whose time is over."""
        return [each for each in self._all if now >= each.until]

    def renew(self, hold: InFlightMessage, asked_at: float) -> None:
        """SQS prolonged it, at that moment or later."""
        hold.renewed, hold.until = asked_at, asked_at + self._seconds
