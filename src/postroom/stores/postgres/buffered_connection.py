"""A connection that takes a large answer in a few large pieces.

PostgreSQL sends an answer in pieces of 8 KiB, and the driver wakes up for each: a thousand messages are sixty wake-ups of the
event loop, which cost more than reading them. Here, once an answer turns out to be larger than one piece, the next piece
waits for a moment, and is all that came meanwhile.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

MOMENT_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class _More:
    """The answer goes on; what to wait for."""

    wanted: Wait


class BufferedConnection(AsyncConnection[tuple[Any, ...]]):
    """As the driver's, but for the waiting."""

    async def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        wanted: Wait | None = None
        try:
            while True:
                answer = await super().wait(_piece(gen, wanted, self.pgconn.socket), *args, **kwargs)
                if not isinstance(answer, _More):
                    return answer
                wanted = answer.wanted
                await asyncio.sleep(MOMENT_SECONDS)
        except BaseException:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # In the middle of an answer that nobody will read to its end: good for nothing more.
                await self.close()
            raise


def _piece(gen: Generator[Any, Any, Any], wanted: Wait | None, socket: int) -> Generator[Any, Any, Any]:
    """The driver's own work, until it has read all there is and needs more."""
    arrived = select.poll()
    arrived.register(socket, select.POLLIN)
    try:
        if wanted is None:
            wanted = next(gen)
        while True:
            ready = yield wanted
            wanted = gen.send(ready)
            # Nothing is ready where the driver starts to wait again, after a cancellation.
            if ready and ready & Ready.R and wanted == Wait.R:
                # libpq reads 16 KiB at a time.
                while wanted == Wait.R and arrived.poll(0):
                    wanted = gen.send(Ready.R)
                return _More(wanted)
    except StopIteration as done:
        return done.value
