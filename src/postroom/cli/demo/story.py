"""The story: orders come in while a relay carries their messages, and the faults strike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from postroom.cli.demo.proof import Proof
from postroom.cli.demo.shop import ORDERS, CreditRefused, Shop
from postroom.cli.demo.stage import Line, Stage, order_of
from postroom.cli.demo.warehouse import Warehouse
from postroom.config import RelayConfig
from postroom.relay import Relay, Route
from postroom.retry import RetryPolicy, Table
from postroom.store import OPEN, Query, Record, Store
from postroom.stores import open_store

# One message a batch and two batches at once: slow enough for the eye.
CONFIG = RelayConfig(poll=timedelta(milliseconds=50), batch=1, concurrency=2)
LOOK_SECONDS = 0.05
BACKOFF = timedelta(seconds=0.3)


async def play(path: Path, stage: Stage) -> Proof:
    """Tell the story on this stage; what the tables say in the end."""
    async with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as eye:
        await store.migrate()
        shop, warehouse = Shop(path), Warehouse(stage)
        try:
            with stage.open():
                async with _meanwhile(_watch(eye, stage)), _relay(store, warehouse, stage):
                    await _sell(shop, stage)
                    await _until(eye, lambda records: all(record.parked for record in _open(records)))
                    await _mend(eye, warehouse, stage)
                    records = await _until(eye, lambda records: not _open(records))
                    await asyncio.sleep(stage.pace)
            published = sum(record.status == "published" for record in records)
            return Proof(len(ORDERS), shop.orders(), published, warehouse.delivered)
        finally:
            shop.close()


async def _sell(shop: Shop, stage: Stage) -> None:
    stage.scene("A shop takes orders: a row and a message, one commit. A relay carries them.")
    for order in ORDERS:
        await asyncio.sleep(stage.pace)
        try:
            shop.take(order)
        except CreditRefused as refused:
            stage.tell(Line("shop", order, f"INSERT + put, ROLLBACK: {refused}", "magenta"))
        else:
            stage.tell(Line("shop", order, "INSERT + put, COMMIT"))


async def _mend(store: Store, warehouse: Warehouse, stage: Stage) -> None:
    """A person sees the dead letter, mends what killed it, and sends it again."""
    stage.pause(await store.find(Query()))
    stage.scene("Barbara's dead letter parks her line: nothing passes it, until a person acts.")
    await asyncio.sleep(3 * stage.pace)
    (dead,) = await store.find(Query(status="dead"))
    warehouse.knows_barbara = True
    stage.tell(Line("a person", order_of(dead), "tells the warehouse who she is", "cyan"))
    await asyncio.sleep(2 * stage.pace)
    await store.requeue(Query(ids=[dead.message.id]))
    stage.tell(Line("a person", order_of(dead), "postroom requeue --status dead", "cyan"))


@asynccontextmanager
async def _relay(store: Store, warehouse: Warehouse, stage: Stage) -> AsyncIterator[None]:
    """A relay that runs meanwhile; stopped after, or ended by its own error."""
    retry = RetryPolicy(Table((max(BACKOFF, timedelta(seconds=2 * stage.pace)),)), max_attempts=3)
    relay = Relay(store, [Route(to=warehouse, retry=retry)], config=CONFIG, name="demo")
    async with asyncio.TaskGroup() as running:
        running.create_task(relay.run())
        try:
            yield
        finally:
            relay.stop()


@asynccontextmanager
async def _meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(store: Store, stage: Stage) -> None:
    while True:
        stage.outbox(await store.find(Query()))
        await asyncio.sleep(LOOK_SECONDS)


async def _until(store: Store, happened: Callable[[Sequence[Record]], bool]) -> Sequence[Record]:
    """Wait until the outbox stands like this; how it stands then."""
    while not happened(records := await store.find(Query())):  # noqa: ASYNC110 - no event tells of a table
        await asyncio.sleep(LOOK_SECONDS)
    return records


def _open(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status in OPEN]
