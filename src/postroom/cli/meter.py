"""How far a long command has come: a line on the terminal that is gone when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from postroom.clock import monotonic

if TYPE_CHECKING:
    from rich.status import Status

Thing = TypeVar("Thing")
PATIENCE_SECONDS = 1.0
"""What is done sooner needs no progress."""
EVERY = 500
"""Looking at the clock for each message would cost more than the message."""


class Meter:
    """Counts messages on stderr, if that is a terminal and it takes longer than `PATIENCE_SECONDS`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._began = monotonic()
        self._status: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def counted(self, things: Iterable[Thing], by: Callable[[Thing], int] = lambda _: 1) -> Iterator[Thing]:
        """The same things, counted as they pass; `by` says how many messages one of them is."""
        count, shown = 0, 0
        for thing in things:
            yield thing
            count += by(thing)
            if count - shown >= EVERY:
                shown = count
                self._show(count)

    def _show(self, count: int) -> None:
        if monotonic() - self._began < PATIENCE_SECONDS or not sys.stderr.isatty():
            return
        text = f"{self._doing} {count:,} messages"
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status(text, spinner="line")
            self._status.start()
        self._status.update(text)
