"""A relay is killed and started again at once. Its lease is an hour: only the proof that its process is gone moves anything."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.commands import POSTROOM, Popen

from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import Query, Record
from postroom.events import Listeners
from postroom.message import Message
from postroom.relay import presence
from postroom.relay.heartbeat import Heartbeat
from postroom.relay.owned_lanes import OwnedLanes
from postroom.relay.verdict import lost_with_its_relay
from postroom.retry import RetryPolicy
from postroom.stores import open_store
from postroom.testing.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of its processes so")

HANDLER = """
import os, time
from pathlib import Path

def deliver(message):
    while Path("closed").exists():
        time.sleep(0.005)
    with open("journal", "a") as journal:
        journal.write(f"{os.getpid()}\\n")
"""
RELAY = [*POSTROOM, "relay", "--to", "local://handler:deliver", "--lease", "1h", "--batch", "5"]


@pytest.fixture
def store(database: str, tmp_path: Path) -> str:
    (tmp_path / "handler.py").write_text(HANDLER)

    async def fill() -> None:
        async with open_store(database) as store:
            await store.schema.migrate()
            await store.outbox.put([Message("order.paid", key=f"k{number}", data=number) for number in range(60)])

    asyncio.run(fill())
    return database


@contextmanager
def a_relay(store: str, folder: Path, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*before, *RELAY, "--store", store]
    relay = Popen(command, cwd=folder, env=os.environ, stdout=subprocess.DEVNULL)
    try:
        yield relay
    finally:
        relay.kill()
        relay.wait()


def records(store: str) -> list[Record]:
    async def find() -> list[Record]:
        async with open_store(store) as opened:
            return list(await opened.ops.find(Query()))

    return asyncio.run(find())


def lanes(store: str) -> tuple[list[Lane], list[RelayInfo]]:
    async def find() -> tuple[list[Lane], list[RelayInfo]]:
        async with open_store(store) as opened:
            return list(await opened.lanes.all()), list(await opened.lanes.relays())

    return asyncio.run(find())


def test_a_relay_killed_and_started_again_at_once_moves_messages_at_once(store: str, tmp_path: Path) -> None:
    (tmp_path / "closed").touch()
    with a_relay(store, tmp_path) as killed:
        until(lambda: any(record.status == "sending" for record in records(store)))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    flying = {record.seq for record in records(store) if record.status == "sending"}
    assert flying, "it died with messages in flight"
    before, _ = lanes(store)
    (tmp_path / "closed").unlink()
    with a_relay(store, tmp_path) as second:
        until((tmp_path / "journal").exists)
        until(lambda: sum(record.status == "published" for record in records(store)) >= 60 - len(flying))
        owner = next(relay.owner for relay in lanes(store)[1] if relay.pid == second.pid)
        # Long before the lease ends. What the killed one held in a transaction, the database has to let go of first.
        until(lambda: {lane.owner for lane in lanes(store)[0]} == {owner})
        after, _ = lanes(store)
        assert all(new.epoch == old.epoch + 1 for old, new in zip(before, after, strict=True)), "every lane is fenced"
        spent = [record.attempts for record in records(store) if record.seq in flying]
        assert min(spent) >= 1, "what was in flight has spent an attempt"


def test_a_relay_that_only_stands_still_keeps_its_lanes(store: str, tmp_path: Path) -> None:
    """Its process is there: whatever it holds may still be sent."""
    (tmp_path / "closed").touch()
    with a_relay(store, tmp_path) as first:
        # All its hands are full, so that it stops with no transaction open.
        until(lambda: sum(record.status == "sending" for record in records(store)) == 20)
        first.send_signal(signal.SIGSTOP)
        before, _ = lanes(store)
        assert asyncio.run(beaten_once(store)) == 0
        assert lanes(store)[0] == before


async def beaten_once(url: str) -> int:
    """How many lanes another relay has after its first beat."""
    holdings = OwnedLanes()
    lost = lost_with_its_relay(RetryPolicy.WORKER, park=True)
    info = RelayInfo(owner="newcomer", name="newcomer", process=presence.process())
    async with open_store(url) as store:
        await Heartbeat(store, info, holdings, timedelta(hours=1), lost, Listeners()).beat()
    return len(holdings)
