"""How many messages one claim asks for. It tunes itself: larger while all goes quickly, smaller when sending is slow. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MOST_BYTES = 8 * 2**20
"""The bodies of one batch are not meant to be larger together."""
REMEMBERED = 8
"""By the bodies of so many trips it is judged how many fit."""
QUICK = 10
"""A trip is quick when publishing took less than this part of the send time-out, and slow above twice that."""


class Trip(NamedTuple):
    """What became of one batch."""

    asked: int
    """How many messages its claim asked for."""
    found: int
    published: int
    size: int
    """Of all its bodies, in bytes."""
    seconds: float
    """How long publishing took."""


class BatchSize:
    """The size of the next batch, from how the ones before it went.

    >>> batch = BatchSize(32, 4_096, send_timeout=2.5)
    >>> batch.learn(Trip(asked=32, found=32, published=32, size=9_600, seconds=0.01))
    >>> batch.size
    64
    """

    def __init__(self, first: int, most: int, *, send_timeout: float) -> None:
        self._first, self._most, self._quick = first, most, send_timeout / QUICK
        self._by_time = first
        """What the times allow; the bodies may allow less."""
        self._weights: deque[float] = deque(maxlen=REMEMBERED)
        self.size = first
        """How many messages the next claim asks for."""

    @property
    def is_fixed(self) -> bool:
        """Was it set by hand? Then there is nothing to learn."""
        return self._first == self._most

    def learn(self, trip: Trip) -> None:
        """Double after a full and quick trip, halve after a slow one; then no more than the bodies seen lately allow.

        Only a trip that was asked for at the current size counts: several are on their way at once, and the others say
        nothing of this size. One of which little was published says nothing either: the broker was away."""
        if self.is_fixed or not trip.found:
            return
        if trip.asked == self.size:
            self._by_time = self._judged(trip)
        self._weights.append(trip.size / trip.found)
        self.size = min(self._by_time, self._fitting)

    def _judged(self, trip: Trip) -> int:
        if trip.seconds > 2 * self._quick:
            return max(self.size // 2, self._first)
        full = trip.found >= trip.asked and 2 * trip.published >= trip.found
        if full and trip.seconds < self._quick:
            return max(min(2 * self.size, self._most), self._by_time)
        return self._by_time

    @property
    def _fitting(self) -> int:
        """How many bodies fit, by the heaviest trip of the last ones."""
        heaviest = max(self._weights)
        return self._most if heaviest == 0 else max(int(MOST_BYTES / heaviest), 1)
