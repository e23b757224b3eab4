"""What a relay has done so far, added up from its events: totals, rates, lanes, what is paused and what failed last.

No clock is asked here. The caller gives the time with each event and each question, in seconds of a clock that only grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from postroom.events import (
    BatchSettled,
    Event,
    LanesLost,
    LanesReleased,
    LanesTaken,
    MessageBuried,
    MessageRetried,
    RoutePaused,
    RouteResumed,
)

WINDOW_SECONDS = 5.0
"""What counts as now, for a rate."""
SAMPLE_SECONDS = 0.1
"""Batches that are settled closer together are one sample: a busy relay settles thousands a second."""
SECONDS_MIN = 0.001
"""A relay has run for at least so long: nothing is divided by zero."""


@dataclass(slots=True)
class RelayTotals:
    """The numbers of one relay since *began*. *brokers* is how many it sends to."""

    began: float
    brokers: int = 1
    published: int = 0
    failed: int = 0
    dead: int = 0
    expired: int = 0
    lanes: set[int] = field(default_factory=set)
    paused: dict[str, RoutePaused] = field(default_factory=dict)
    """The routes whose broker is away, and those that are shut until a person acts, by name."""
    last_failure: MessageRetried | MessageBuried | None = None
    """The last try that was spent in vain."""
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, event: Event, at: float) -> None:
        """Count this event, which happened at this time."""
        match event:
            case BatchSettled():
                self._add_batch(event, at)
            case LanesTaken():
                self.lanes.update(event.lanes)
            case LanesReleased() | LanesLost():
                self.lanes.difference_update(event.lanes)
            case RoutePaused():
                self.paused[event.route] = event
            case RouteResumed():
                self.paused.pop(event.route, None)
            case MessageBuried():
                self.last_failure = event
            case MessageRetried() if event.spent:
                self.last_failure = event

    def _add_batch(self, settled: BatchSettled, at: float) -> None:
        self.published += settled.published
        self.failed += settled.failed
        self.dead += settled.dead
        self.expired += settled.expired
        if not settled.published:
            return
        while self._samples and self._samples[0][0] < at - WINDOW_SECONDS:
            self._samples.popleft()
        if self._samples and at - self._samples[-1][0] < SAMPLE_SECONDS:
            then, count = self._samples.pop()
            self._samples.append((then, count + settled.published))
        else:
            self._samples.append((at, settled.published))

    def seconds(self, at: float) -> float:
        """Return for how long it has run."""
        return max(at - self.began, SECONDS_MIN)

    def rate(self, at: float) -> float:
        """Return how many messages were published a second, from the beginning on."""
        return self.published / self.seconds(at)

    def rate_now(self, at: float) -> float:
        """Return how many messages were published a second, in the last few seconds."""
        lately = sum(count for then, count in self._samples if then >= at - WINDOW_SECONDS)
        return lately / min(self.seconds(at), WINDOW_SECONDS)

    @property
    def shut(self) -> Sequence[RoutePaused]:
        """The routes that stay paused until a person acts."""
        return [event for event in self.paused.values() if event.delay is None]

    @property
    def is_paused(self) -> bool:
        """Is every route paused, so that nothing is sent at all?"""
        return len(self.paused) >= self.brokers

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that a person looks at: something has changed when these have."""
        return self.published, self.failed, self.dead, self.expired, len(self.lanes)
