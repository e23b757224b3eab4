"""What every publisher does around its broker: is it open, by when must it answer, and what is still under way?

A transport brings one coroutine, which sends a batch and answers by its deadline. `Calls` does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, Unavailable
from postroom.errors import ConfigError

CLOSED = Unavailable("CLOSED", "the publisher is not open")
MARGIN_SHARE, MARGIN_SECONDS = 0.1, 0.25
"""So much of its time a transport leaves unused, the smaller of the two, so that its answer is there before the time is up."""
GRACE_SECONDS = 1.0
"""So long after its time a call may still take to end, before `close` no longer waits for it."""


class Deadline(NamedTuple):
    """When one call of `publish` began, and by when it answers. The clock is `postroom.clock.monotonic`."""

    begin: float
    until: float
    """The transport answers by now. It is a little before the end."""
    end: float
    """The time of the call is up."""

    def after(self, share: float) -> float:
        """Return the moment at which this share of the whole time, from 0 to 1, is over."""
        return self.begin + share * (self.end - self.begin)


Send: TypeAlias = Callable[[Sequence[Envelope], Deadline], Awaitable[Sequence[Outcome]]]
"""Sends a batch that is not empty, and returns an outcome for each message by the deadline's `until`."""


def deadline(timeout: timedelta) -> Deadline:
    """Return the deadline of a call that begins now and has this much time."""
    begin, seconds = monotonic(), timeout.total_seconds()
    return Deadline(begin, begin + seconds - min(MARGIN_SHARE * seconds, MARGIN_SECONDS), begin + seconds)


def timeout_at(moment: float) -> asyncio.Timeout:
    """Return `asyncio.timeout_at` for a moment of `postroom.clock.monotonic`, which need not be the event loop's clock."""
    return asyncio.timeout(moment - monotonic())


def checked_source(source: str) -> str:
    """Return what a publisher was given as CloudEvents' source. Raises ConfigError where it is empty."""
    if not source:
        raise ConfigError("source is empty; CloudEvents needs one, like 'https://shop.example'.")
    return source


class Calls:
    """The calls of one publisher's `publish` that are under way. It belongs to one event loop at a time."""

    def __init__(self) -> None:
        self.is_open = False
        self._under_way: dict[asyncio.Future[Any], float] = {}
        """What `close` waits for, and when the time of each is up."""

    def open(self) -> None:
        """Take batches from now on."""
        self.is_open = True

    async def run(self, send: Send, batch: Sequence[Envelope], timeout: timedelta) -> Sequence[Outcome]:
        """Return what `publish` answers: CLOSED for each message while the publisher is not open, nothing for an empty batch,
        and else what *send* returns. A cancellation goes to *send*, and `close` waits until *send* has ended."""
        if not self.is_open:
            return [CLOSED] * len(batch)
        if not batch:
            return []
        by = deadline(timeout)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[done] = by.end
        try:
            return await send(batch, by)
        finally:
            del self._under_way[done]
            done.set_result(None)

    def keep(self, task: asyncio.Task[Any], by: Deadline) -> None:
        """Let `close` wait for this task too: it may go on after the call that began it was cancelled."""
        self._under_way[task] = by.end
        task.add_done_callback(self._under_way.pop)

    async def close(self) -> None:
        """Take no more batches, and wait until those under way have their answers. A call that does not end by its time and
        GRACE_SECONDS more is not waited for any longer. Closing twice is fine."""
        self.is_open = False
        if self._under_way:
            latest = max(self._under_way.values()) + GRACE_SECONDS
            await asyncio.wait(tuple(self._under_way), timeout=max(latest - monotonic(), 0))
