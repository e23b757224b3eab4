"""How long to wait when there is nothing to do: a moment at first, then longer, up to a limit; and what cuts it short.

A wake-up is only ever a hint: what is open in the database decides, and the polling stands behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable

WATCH_AGAIN_SECONDS = 5.0
"""After a watch that broke, how long the polling is alone."""


class Backoff:
    """Doubling waits.

    >>> wait = Backoff(first=1, most=5)
    >>> [wait.next() for _ in range(4)], wait.total
    ([1, 2, 4, 5], 12.0)
    """

    def __init__(self, *, first: float, most: float) -> None:
        self._first, self.most = min(first, most), most
        self._next, self.total = self._first, 0.0

    @property
    def waited(self) -> bool:
        """Was there a wait since the last reset?"""
        return self.total > 0

    def next(self) -> float:
        """How long to wait now."""
        wait, self._next = self._next, min(2 * self._next, self.most)
        self.total += wait
        return wait

    def reset(self) -> None:
        """Something happened: begin with short waits again."""
        self._next, self.total = self._first, 0.0

    def shorten(self) -> None:
        """Something may have happened: wait shortly again, and look before acting."""
        self._next = self._first


async def watch(store: Store, woken: Callable[[], None], unwatched: Callable[[], None]) -> None:
    """Pass the store's hints on, until cancelled. While a store is away, and for a while after, there are none."""
    while True:
        with suppress(StoreUnavailable):
            await store.outbox.watch(woken)
        unwatched()
        await asyncio.sleep(WATCH_AGAIN_SECONDS)
