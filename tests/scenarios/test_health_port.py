"""`postroom relay --health`, as an orchestrator sees it: real processes, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.commands import POSTROOM, Popen, postroom

from postroom.clock import utcnow
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.outbox import Retry
from postroom.stores import open_store
from postroom.testing.waiting import until

HOUR = timedelta(hours=1)


@contextmanager
def a_relay(url: str, health: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running relay, and where its health port is."""
    process = Popen(
        [*POSTROOM, "relay", "--store", url, "--to", "memory://", "--health", health], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "health: " in line)
        yield process, line.split()[1].removesuffix("/livez")
    finally:
        process.kill()
        process.communicate()


def get(address: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


async def leave_a_dead_relay(url: str) -> list[Lane]:
    """One that has every lane, whose lease runs for another hour, and that was last heard of long ago."""
    async with open_store(url) as store:
        await store.schema.migrate()
        begin = utcnow() - 3 * HOUR
        await store.lanes.join(RelayInfo(owner="dead", name="dead"), now=begin)
        lost = Retry(timedelta(0), "LEASE_LOST")
        return list(await store.lanes.take("dead", limit=1_000, lease=4 * HOUR, lost=lambda _: lost, now=begin))


async def end_its_lease(url: str, lanes: list[Lane]) -> None:
    async with open_store(url) as store:
        epochs = {lane.lane: lane.epoch for lane in lanes}
        assert await store.lanes.renew("dead", epochs, lease=timedelta(milliseconds=1))


def test_ready_means_that_every_lane_has_a_live_relay(database: str) -> None:
    lanes = asyncio.run(leave_a_dead_relay(database))
    with a_relay(database) as (process, port):
        assert get(f"{port}/livez")[0] == 200
        status, said = get(f"{port}/readyz")
        assert (status, said["why"][:37]) == (503, "64 of 64 lanes have no live relay: 0,")
        asyncio.run(end_its_lease(database, lanes))
        until(lambda: get(f"{port}/readyz")[0] == 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'post.db'}"
    assert postroom("init", "--store", url, cwd=tmp_path).returncode == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = postroom("relay", "--store", url, "--to", "memory://", "--health", port, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == b""
    said = done.stderr.decode()
    assert "error: The health port 127.0.0.1:" in said
    assert "Address already in use" in said
    assert len(said.splitlines()) == 1
