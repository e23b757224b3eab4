"""faststream-outbox drains no-op messages. Run by the Python of the peers' environment: URL, messages, batch, workers, flush.

As its own benchmark has it: a no-op handler, no log, a fetch interval that never sleeps; on uvloop, which helps it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

PAYLOAD = b"x" * 300
CHUNK = 1_000
PATIENCE_SECONDS = 300


async def main(url: str, messages: int, batch: int, workers: int, flush: int) -> dict[str, float]:
    """The seconds from the start of the broker to the last handler's end, and how many rows are left, which is none."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=workers + 4)
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="faststream")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
    broker = OutboxBroker(engine, outbox_table=table, logger=None)
    done, end = 0, 0.0
    all_done = asyncio.Event()

    async def work(_: bytes) -> None:
        nonlocal done, end
        done += 1
        if done == messages:
            end = time.perf_counter()
            all_done.set()

    broker.subscriber(
        "work",
        max_workers=workers,
        fetch_batch_size=batch,
        terminal_flush_batch_size=flush,
        min_fetch_interval=0.001,
        max_fetch_interval=0.001,
    )(work)
    await _enqueue(broker, engine, messages)
    begin = time.perf_counter()
    await broker.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await all_done.wait()
    await broker.stop()
    async with engine.connect() as connection:
        left = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
    await engine.dispose()
    return {"seconds": end - begin, "left": left, "done": done}


async def _enqueue(broker: OutboxBroker, engine: AsyncEngine, messages: int) -> None:
    for begin in range(0, messages, CHUNK):
        async with AsyncSession(engine) as session, session.begin():
            size = min(CHUNK, messages - begin)
            await broker.publish_batch(*[PAYLOAD] * size, queue="work", session=session)
    async with engine.connect() as connection:
        at_once = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await at_once.execute(text("VACUUM (ANALYZE) faststream"))
        await at_once.execute(text("CHECKPOINT"))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(sys.argv[1], *map(int, sys.argv[2:6])))))
