"""Waiting in a test: for a thing to happen, never for a time to pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_SECONDS = 90.0
"""How long a test waits before it fails. It does not say how fast a thing should be: a busy machine may take this long."""
LOOK_SECONDS = 0.02
"""How long it waits between two looks."""


def until(happened: Callable[[], Any], what: Any = "", *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when *happened* returns something true. Raise AssertionError after so many seconds, with *what* in its text.

    *what* is a text, or a function that is called then and says what it sees."""
    for _ in _looks(happened, what, seconds):
        time.sleep(LOOK_SECONDS)


async def until_async(happened: Callable[[], Any], what: Any = "", *, seconds: float = PATIENCE_SECONDS) -> None:
    """Do the same in a test that is a coroutine: whatever runs in its event loop goes on."""
    for _ in _looks(happened, what, seconds):
        await asyncio.sleep(LOOK_SECONDS)


def _looks(happened: Callable[[], Any], what: Any, seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            seen = what() if callable(what) else what
            raise AssertionError(f"it did not happen within {seconds:g} seconds: {seen}".rstrip(": "))
        yield
