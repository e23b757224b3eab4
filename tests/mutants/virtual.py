"""Time that passes only when everybody waits: a scene of minutes takes milliseconds, and always goes the same way."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

MOST_TURNS = 200_000
"""A scene that takes more turns of the loop than this goes round in circles."""


class _Selector(selectors.SelectSelector):
    """Does not wait: it lets the time pass instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns_left = MOST_TURNS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns_left -= 1
        assert self.turns_left, "it goes round in circles"
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.now += max(timeout, 0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.watch = _Selector()
        super().__init__(self.watch)

    def time(self) -> float:
        return self.watch.now


def run(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene to its end in virtual time."""

    async def play() -> None:
        await scene()

    loop = _Loop()
    try:
        with _clock(loop.time):
            loop.run_until_complete(play())
    finally:
        _put_away(loop)


def sleep_through(seconds: float) -> None:
    """The whole process is stopped for so long: time passes, and nobody does anything."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    loop.watch.now += seconds


def _put_away(loop: _Loop) -> None:
    """End what a scene left running: a relay that is cancelled still wants to settle, so it is told more than once."""
    loop.watch.turns_left = MOST_TURNS
    try:
        with _clock(loop.time):
            while tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    finally:
        loop.close()


@contextmanager
def _clock(now: Callable[[], float]) -> Iterator[None]:
    """Postroom asks the time in one place."""
    begin = datetime.now(UTC)

    class Datetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return (begin + timedelta(seconds=now())).astimezone(tz)

    with (
        patch("postroom.clock.time", SimpleNamespace(monotonic=now, time_ns=lambda: int(now() * 1e9))),
        patch("postroom.clock.datetime", Datetime),
    ):
        yield
