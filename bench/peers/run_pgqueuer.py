"""pgqueuer drains no-op jobs. Run by the Python of the peers' environment: URL, jobs, batch, workers.

As its documentation has it for speed: asyncpg, uvloop, jobs enqueued many at a time, async entrypoints, drain mode.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

PAYLOAD = b"x" * 300
CHUNK = 1_000


async def main(url: str, jobs: int, batch: int, workers: int) -> dict[str, float]:
    """The seconds from the start of the workers to the last job's end, and how many jobs are left, which is none."""
    admin = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(admin))
    if await queries.has_table("pgqueuer"):
        await queries.uninstall()
    await queries.install()
    for begin in range(0, jobs, CHUNK):
        size = min(CHUNK, jobs - begin)
        await queries.enqueue(["work"] * size, [PAYLOAD] * size, [0] * size)
    await admin.execute("VACUUM (ANALYZE) pgqueuer")
    await admin.execute("CHECKPOINT")
    done, end = 0, 0.0

    async def work(_: object) -> None:
        nonlocal done, end
        done += 1
        if done == jobs:
            end = time.perf_counter()

    queues = [PgQueuer(AsyncpgDriver(await asyncpg.connect(url))) for _ in range(workers)]
    for queue in queues:
        queue.entrypoint("work")(work)
    begin_at = time.perf_counter()
    await asyncio.gather(*(queue.run(batch_size=batch, mode=QueueExecutionMode.drain) for queue in queues))
    left = await admin.fetchval("SELECT count(*) FROM pgqueuer")
    return {"seconds": end - begin_at, "left": left, "done": done}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(sys.argv[1], *map(int, sys.argv[2:5])))))
