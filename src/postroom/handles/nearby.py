"""Relays of this very process, and how to tell them of a commit without asking anybody.

A service that runs its relay inside itself knows when it commits. SQLAlchemy and Django tell a handle, and the handle tells
it here. It is only ever a hint: what is open in the database decides, and the polling stands behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

REST_SECONDS = 0.01
"""At most one hint for a relay in this time: one is enough for everything that was committed before it."""


class _Ear:
    """One relay, and the loop that it runs in."""

    __slots__ = ("_busy", "_look", "_loop", "_wanted")

    def __init__(self, look: Callable[[], None]) -> None:
        import asyncio  # a service without a relay need not load it

        self._loop, self._look = asyncio.get_running_loop(), look
        self._wanted = self._busy = False

    def tell(self) -> None:
        self._wanted = True
        if not self._busy:
            self._busy = True
            with suppress(RuntimeError):  # its loop has just been closed
                self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._wanted = False
        self._look()
        self._loop.call_later(REST_SECONDS, self._rested)

    def _rested(self) -> None:
        # In this order: whoever wants something in between either sees that nobody is busy, or is seen here.
        self._busy = False
        if self._wanted:
            self.tell()


_relays: tuple[_Ear, ...] = ()
"""Replaced as a whole, since a commit may read it in any thread."""


def is_anyone() -> bool:
    """Does a relay run in this process?"""
    return bool(_relays)


def tell() -> None:
    """Something was committed, or is just about to be: let the relays of this process look. From any thread; never waits."""
    for each in _relays:
        each.tell()


@contextmanager
def told(look: Callable[[], None]) -> Iterator[None]:
    """Inside, a relay runs in the current loop, and *look* is called in it after commits."""
    global _relays  # noqa: PLW0603 - a process has one list of them
    mine = _Ear(look)
    _relays = (*_relays, mine)
    try:
        yield
    finally:
        _relays = tuple(each for each in _relays if each is not mine)


def _forget() -> None:
    """After a fork the relays run in the parent alone."""
    global _relays  # noqa: PLW0603 - the same
    _relays = ()


os.register_at_fork(after_in_child=_forget)
