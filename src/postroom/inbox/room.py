"""How many handlers run at once, and who runs alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)
ALONE_PATIENCE_SECONDS = 60.0
"""So long one waits to be alone. A handler beside it that never ends must not stop all others."""


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
                    log.warning("A message that may have killed its process is not handled alone: others do not end.")
                yield
            finally:
                for _ in range(taken):
                    self.shared.release()
