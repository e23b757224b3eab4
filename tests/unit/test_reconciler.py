"""What has a record and no message gets one: once, whoever else looks, and not while it is being written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.errors import StoreError, StoreUnavailable
from postroom.message import Message
from postroom.outbox.reconciler import Reconciler, message_id
from postroom.stores.memory import MemoryStore

HOUR = timedelta(hours=1)


class Pages:
    """Somebody's canonical records: natural id to the moment of writing."""

    def __init__(self, **written: timedelta) -> None:
        self.written = {name: utcnow() - ago for name, ago in written.items()}

    async def __call__(self, before: datetime) -> AsyncIterator[tuple[str, Message]]:
        for name, moment in self.written.items():
            if moment < before:
                yield name, Message("page.saved", key=name)


async def keys(store: MemoryStore) -> list[str | None]:
    return [record.message.key for record in await store.ops.find(Query())]


@pytest.mark.requirement("E4")
async def test_a_record_without_a_message_gets_it_once() -> None:
    store, pages = MemoryStore(), Pages(a=HOUR, b=HOUR)
    await store.outbox.put([Message("page.saved", key="a", id=message_id("a"))])
    reconciler = Reconciler(store, pages)
    assert await reconciler.once() == 1
    assert await reconciler.once() == 0
    assert await keys(store) == ["a", "b"]


async def test_what_is_just_being_written_is_left_alone() -> None:
    store = MemoryStore()
    reconciler = Reconciler(store, Pages(a=timedelta(seconds=50)))
    assert await reconciler.once() == 0
    assert await reconciler.once(now=utcnow() + timedelta(seconds=20)) == 1


async def test_several_at_once_put_one() -> None:
    store = MemoryStore()
    names = {f"page{number}": HOUR for number in range(1100)}
    put = await asyncio.gather(*(Reconciler(store, Pages(**names)).once() for _ in range(3)))
    assert sum(put) == len(names)
    assert sorted(map(str, await keys(store))) == sorted(names)


async def test_it_runs_until_it_is_stopped_and_waits_for_a_database_that_is_away() -> None:
    store, asked = MemoryStore(), 0

    async def pages(before: datetime) -> AsyncIterator[tuple[str, Message]]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnavailable("away")
        yield "a", Message("page.saved", key="a")

    reconciler = Reconciler(store, pages, every=timedelta(milliseconds=5))
    running = asyncio.create_task(reconciler.run())
    async with asyncio.timeout(5):
        while asked < 3:
            await asyncio.sleep(0.005)
        reconciler.stop()
        await running
    assert await keys(store) == ["a"]


async def test_what_will_not_pass_by_itself_ends_it() -> None:
    async def pages(before: datetime) -> AsyncIterator[tuple[str, Message]]:
        yield "a", Message("page.saved")
        raise StoreError("no such table")

    with pytest.raises(StoreError, match="no such table"):
        await Reconciler(MemoryStore(), pages).run()
