"""What a relay has done so far, added up from its events. Nothing is shown here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from postroom.clock import monotonic
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


class Tally:
    """Listens to a relay, and knows the numbers."""

    def __init__(self, *, draining: bool = False, brokers: int = 1, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._begin = clock()
        self._draining, self._brokers = draining, brokers
        self.stopping = False
        self.published = self.failed = self.dead = self.expired = 0
        self.lanes: set[int] = set()
        self.paused: dict[str, RoutePaused] = {}
        """The routes whose broker is away, and those that are shut until a person acts, by name."""
        self.last_failure: MessageRetried | MessageBuried | None = None
        self._samples: deque[tuple[float, int]] = deque()

    def __call__(self, event: Event) -> None:
        match event:
            case BatchSettled():
                self._add(event)
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

    def _add(self, settled: BatchSettled) -> None:
        self.published += settled.published
        self.failed += settled.failed
        self.dead += settled.dead
        self.expired += settled.expired
        if settled.published:
            now = self._clock()
            if self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS:
                then, count = self._samples.pop()
                self._samples.append((then, count + settled.published))
            else:
                self._samples.append((now, settled.published))

    @property
    def seconds(self) -> float:
        """Since when, at least a millisecond."""
        return max(self._clock() - self._begin, 0.001)

    @property
    def rate(self) -> float:
        """Messages published a second, over all."""
        return self.published / self.seconds

    @property
    def rate_now(self) -> float:
        """Messages published a second, over the last few."""
        while self._samples and self._samples[0][0] < self._clock() - WINDOW_SECONDS:
            self._samples.popleft()
        return sum(count for _, count in self._samples) / min(self.seconds, WINDOW_SECONDS)

    @property
    def state(self) -> str:
        """What it is doing, in a word or two."""
        if self.stopping:
            return "stopping"
        if len(self.paused) >= self._brokers:
            return "shut: a person must act" if len(self.shut) == len(self.paused) else "paused: broker away"
        return "draining" if self._draining else "running"

    @property
    def shut(self) -> list[str]:
        """A sentence for each route that is shut until a person acts."""
        return [
            f"route {name} is shut ({event.code}): mend it, or take it out, and restart the relay."
            for name, event in self.paused.items()
            if event.delay is None
        ]

    @property
    def numbers(self) -> tuple[int, ...]:
        """What has changed when these have."""
        return self.published, self.failed, self.dead, self.expired, len(self.lanes)

    def summary(self) -> str:
        """All of it in a line."""
        parts = [
            f"{self.published:,} published ({self.rate:,.0f}/s)",
            f"{self.failed:,} failed {'try' if self.failed == 1 else 'tries'}",
            f"{self.dead:,} dead",
        ]
        if self.expired:
            parts.append(f"{self.expired:,} expired")
        return ", ".join(parts)
