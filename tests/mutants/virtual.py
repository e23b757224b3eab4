"""Time that passes only when everybody waits: a scene of minutes takes milliseconds, and always goes the same way."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
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
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns += 1
        assert self._turns < MOST_TURNS, "it goes round in circles"
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.now += max(timeout, 0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._watch = _Selector()
        super().__init__(self._watch)

    def time(self) -> float:
        return self._watch.now


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


def _put_away(loop: _Loop) -> None:
    """Drop what a scene left running, where it stands: nobody waits for the relays of a scene that is over."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    with _clock(loop.time):
        for _ in range(100):
            loop.call_soon(loop.stop)
            loop.run_forever()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a loop of settles may outlive being cancelled
    loop.close()


@contextmanager
def _clock(now: Callable[[], float]) -> Iterator[None]:
    """Postroom asks the time in one place; the relay, of the relays that are alive, in one more."""
    begin = datetime.now(UTC)

    class Datetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return (begin + timedelta(seconds=now())).astimezone(tz)

    with ExitStack() as patches:
        patches.enter_context(patch("postroom.clock.time", SimpleNamespace(monotonic=now)))
        for name, module in list(sys.modules.items()):
            if name.startswith(("postroom.clock", "postroom.relay.")) and hasattr(module, "datetime"):
                patches.enter_context(patch.object(module, "datetime", Datetime))
        yield
