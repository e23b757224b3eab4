"""A SQLite file that is replaced under whoever has it open, as a restore does it: it is noticed, and the new one is used."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query
from postroom.errors import StoreUnavailable
from postroom.relay import Relay
from postroom.relay.routes import Route
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import a_message
from postroom.testing.contracts.inbox import an_event
from postroom.testing.waiting import until_async
from postroom.transports.memory import MemoryBroker, MemoryPublisher


async def a_file(path: Path, *data: object) -> Path:
    """A database with these messages, nobody at it."""
    async with SQLiteStore(path) as store:
        await store.schema.migrate()
        await store.outbox.put([a_message(key="a", data=each) for each in data])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def restore(backup: Path, path: Path) -> None:
    """As people do it, in one step."""
    for leftover in (f"{path}-wal", f"{path}-shm"):
        Path(leftover).unlink(missing_ok=True)
    backup.replace(path)


async def test_a_store_says_once_that_its_file_was_replaced_and_then_reads_the_new_one(tmp_path: Path) -> None:
    path, backup = await a_file(tmp_path / "shop.db", "old"), await a_file(tmp_path / "backup.db", "new")
    async with SQLiteStore(path) as store:
        assert [record.message.data for record in await store.ops.find(Query())] == ["old"]
        restore(backup, path)
        with pytest.raises(StoreUnavailable, match="replaced"):
            await store.ops.counts()
        assert [record.message.data for record in await store.ops.find(Query())] == ["new"]
        await store.outbox.put([a_message(data="after")])
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (2,)


async def test_a_relay_carries_what_is_in_the_new_file(tmp_path: Path) -> None:
    path, backup = await a_file(tmp_path / "shop.db", 1), await a_file(tmp_path / "backup.db", 2)
    broker = MemoryBroker()
    config = RelayConfig(lease=timedelta(seconds=6), poll=timedelta(seconds=0.1))
    async with SQLiteStore(path) as store, SQLiteStore(path) as beat:
        route = Route(to=MemoryPublisher(broker, topic="orders"))
        relay = Relay(store, [route], config=config, heartbeat=beat)
        running = asyncio.create_task(relay.run())
        await until_async(lambda: len(broker.topics["orders"]) == 1)
        restore(backup, path)
        await until_async(lambda: len(broker.topics["orders"]) == 2)
        # And it is told of commits to the new file.
        async with SQLiteStore(path) as other:
            await other.outbox.put([a_message(key="a", data=3)])
        await until_async(lambda: len(broker.topics["orders"]) == 3)
        relay.stop()
        await running
    assert [message.data for message in broker.topics["orders"]] == [1, 2, 3]


async def test_a_restore_in_several_steps_is_waited_for(tmp_path: Path) -> None:
    path, backup = await a_file(tmp_path / "shop.db", "old"), await a_file(tmp_path / "backup.db", "new")
    whole = backup.read_bytes()
    async with SQLiteStore(path) as store:
        await store.ops.counts()
        path.unlink()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="gone"):
                await store.ops.counts()
        assert not path.exists(), "nothing but init makes a file"
        for size in (0, 10, 5_000):
            path.write_bytes(whole[:size])
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await store.ops.counts()
            path.unlink()
        restore(backup, path)
        assert [record.message.data for record in await store.ops.find(Query())] == ["new"]


async def test_an_inbox_remembers_in_the_new_file(tmp_path: Path) -> None:
    path, backup = await a_file(tmp_path / "shop.db"), await a_file(tmp_path / "backup.db")
    ids = [an_event() for _ in range(2)]
    async with SQLiteStore(path) as store:
        inbox = store.inbox
        async with inbox.transaction() as tx:
            await tx.remember("billing", [ids[0]])
        restore(backup, path)
        async with inbox.transaction() as tx:
            assert await tx.remember("billing", ids) == set(ids)

        def blocking() -> set[object]:
            with inbox.blocking() as tx:
                return set(tx.remember("billing", ids))

        assert await asyncio.to_thread(blocking) == set()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM inbox").fetchone() == (2,)
