"""The tasks of an inbox, what each of them handles, and how many handle at once.

None may end quietly while it holds a key: that key would stop for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import Delivery
from postroom.durations import format_duration
from postroom.errors import PostroomError
from postroom.text import one_line

log = logging.getLogger(__name__)
ABANDON_SECONDS = 5.0
"""So long whoever is abandoned may take to roll back."""
ALONE_PATIENCE_SECONDS = 60.0
"""So long one waits to be alone. A handler beside it that never ends must not stop all others."""


@dataclass(slots=True)
class InHand:
    """What one task handles now."""

    deliveries: Sequence[Delivery]
    since: float
    """In monotonic seconds."""
    is_told: bool = False
    """Somebody was told that it takes long."""

    @property
    def age(self) -> float:
        return monotonic() - self.since

    def __str__(self) -> str:
        return named(self.deliveries)


class Tasks:
    """Starts tasks, and sees how they end. One that ends with an error, or by a cancellation that nobody here asked for,
    breaks the whole: *on_broken* is called then, and `broken` says why."""

    def __init__(self, on_broken: Callable[[], None]) -> None:
        self._on_broken = on_broken
        self._running: set[asyncio.Task[None]] = set()
        self._in_hand: dict[asyncio.Task[None] | None, InHand] = {}
        self._abandoning = False
        self.broken: BaseException | None = None

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin this beside all others."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    @contextmanager
    def holding(self, deliveries: Sequence[Delivery]) -> Iterator[None]:
        """The current task handles these. An error leaves them in its hand, so that it can be told what they were."""
        task = asyncio.current_task()
        self._in_hand[task] = InHand(deliveries, monotonic())
        yield
        del self._in_hand[task]

    def tell_of_long_ones(self, seconds: float) -> None:
        """Warn once of everything that has been in hand for longer than this."""
        for held in self._in_hand.values():
            if held.age > seconds and not held.is_told:
                held.is_told = True
                log.warning("The handler of %s has been running for %s, and still runs.", held, _since(held))

    async def end(self, grace: timedelta) -> int:
        """Wait until all have ended, for so long; then abandon those that are left. How many were."""
        try:
            await self._wait(grace.total_seconds())
        except asyncio.CancelledError:
            self._abandon()
            raise
        if not self._running:
            return 0
        abandoned = self._abandon()
        await self._wait(ABANDON_SECONDS)
        return abandoned

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:  # one that ends may have begun another
                    await asyncio.wait(self._running)

    def _abandon(self) -> int:
        self._abandoning = True
        for held in self._in_hand.values():
            log.warning(
                "The handler of %s is abandoned, after %s: it did not end in time. Nothing of it is kept, and the message "
                "comes again.",
                held,
                _since(held),
            )
        for task in self._running:
            task.cancel()
        return len(self._in_hand)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        held = self._in_hand.pop(task, None)
        if task.cancelled() and self._abandoning:
            return
        error = _cancelled(held) if task.cancelled() else task.exception()
        if error is not None:
            self.broken = self.broken or error
            self._on_broken()


class Room:
    """Places for so many at once. `shared` takes one of them, `alone` all."""

    def __init__(self, places: int) -> None:
        self._places = places
        self.shared = asyncio.Semaphore(places)
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until nobody else is inside, and let nobody in meanwhile. Goes on with others beside it when that takes
        longer than a minute."""
        async with self._turn:  # two who collect places at once would wait for each other
            taken = 0
            try:
                try:
                    async with asyncio.timeout(ALONE_PATIENCE_SECONDS):
                        while taken < self._places:
                            await self.shared.acquire()
                            taken += 1
                except TimeoutError:
                    log.warning(
                        "A message that may have killed its process is not handled alone: other handlers do not end."
                    )
                yield
            finally:
                for _ in range(taken):
                    self.shared.release()


def named(deliveries: Sequence[Delivery]) -> str:
    """The messages as a log line names them: the first one, and how many there are besides.

    >>> named([])
    'no message'
    """
    if not deliveries:
        return "no message"
    message, more = deliveries[0].message, len(deliveries) - 1
    key = "" if message.key is None else f", key {one_line(message.key)}"
    first = f"message {message.id} ({one_line(message.type)}{key})"
    return f"{first} and {more:,} more" if more else first


def _since(held: InHand) -> str:
    return format_duration(timedelta(seconds=round(held.age)))


def _cancelled(held: InHand | None) -> PostroomError:
    at = "" if held is None else f" while it handled {held}"
    return PostroomError(
        f"A task of the inbox was cancelled{at}, but not by the inbox: look for code that cancels other tasks, "
        "such as a handler that cancels the task it runs in."
    )
