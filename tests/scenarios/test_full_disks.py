"""A server whose disk is full: nothing is lost, nothing ends, and all goes on when there is room again.

The database stands on a small file system of its own, so that the server's log and every other database have room.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.servers import unprivileged
from tests.servers.databases import in_database
from tests.servers.mariadb import connect as mariadb_connect

from postroom.config.values import RelayConfig
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.relay import Relay
from postroom.relay.routes import Route
from postroom.stores import open_store
from postroom.testing.contracts._case import a_message
from postroom.testing.waiting import until_async
from postroom.transports.memory import MemoryBroker, MemoryPublisher

DISK_MB, BALLAST_MB = 24, 8
LARGE = secrets.token_hex(50_000)
"""The data of one message, which no server can press: each needs room of its own."""
PATIENCE_SECONDS = 60


class Disk:
    """A small file system, which the servers' user owns. It is full, until `relieve` removes the ballast."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def burden(self) -> None:
        self._ballast.write_bytes(os.urandom(BALLAST_MB << 20))

    def relieve(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk() -> Iterator[Disk]:
    # Not below pytest's folder, where the servers' user may not go.
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0711", "tmpfs", folder]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        try:
            unprivileged.give(Path(folder))
            yield Disk(Path(folder))
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def on_postgres(url: str, disk: Disk) -> Iterator[str]:
    """The database of this URL, moved to the disk."""
    home = unprivileged.private(disk.folder / "home")
    name = urlsplit(url).path[1:]
    with psycopg.connect(in_database(url, "postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE TABLESPACE t_{name} LOCATION '{home}'".encode())
        try:
            admin.execute(f'ALTER DATABASE "{name}" SET TABLESPACE t_{name}'.encode())
            yield url
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
            admin.execute(f'CREATE DATABASE "{name}"'.encode())
            admin.execute(f"DROP TABLESPACE t_{name}".encode())


@contextmanager
def on_mariadb(url: str, disk: Disk) -> Iterator[str]:
    """A database whose folder is on the disk: the server follows the link."""
    home = unprivileged.private(disk.folder / "home")
    connection = mariadb_connect(url)
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT @@datadir")
        (row,) = cursor.fetchall()
        name = f"full_{urlsplit(url).path[1:]}"[:60]
        link = Path(row[0]) / name
        link.symlink_to(home)
        try:
            yield url.replace(urlsplit(url).path, f"/{name}")
        finally:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
            link.unlink(missing_ok=True)
    finally:
        connection.close()


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest, disk: Disk) -> Iterator[str]:
    moved = {"postgres": on_postgres, "mariadb": on_mariadb}[request.param]
    with moved(request.getfixturevalue(f"{request.param}_database"), disk) as url:
        yield url


async def test_a_full_disk_is_waited_for_and_loses_nothing(database: str, disk: Disk) -> None:
    broker, put = MemoryBroker(), list[int]()
    config = RelayConfig(lease=timedelta(seconds=10), poll=timedelta(seconds=0.1))
    async with open_store(database) as store, open_store(database) as producer:
        await store.schema.migrate()
        disk.burden()
        relay = Relay(store, [Route(to=MemoryPublisher(broker, topic="orders"))], config=config)
        running = asyncio.create_task(relay.run())
        try:
            await _put_until_it_is_full(producer, put)
            assert len(put) > 3
            with pytest.raises(StoreUnavailable):
                await _put_large(producer, len(put))
            # Ten of its polls, and some of its beats.
            await asyncio.sleep(1)
            assert not running.done(), "the relay ended, though no message is at fault"
            disk.relieve()
            await _put_when_there_is_room(producer, put)
            await until_async(lambda: _arrived(broker) >= set(put))
        finally:
            relay.stop()
            await running
        came = [int(message.headers["number"]) for message in broker.topics["orders"]]
        assert list(dict.fromkeys(came)) == sorted(put), (
            "in the order in which they were written, none lost, none made up"
        )
        counts = (await store.ops.counts()).by_status
    assert {status: count for status, count in counts.items() if count} == {"published": len(put)}


def _arrived(broker: MemoryBroker) -> set[int]:
    return {int(message.headers["number"]) for message in broker.topics["orders"]}


async def _put_large(store: Store, number: int) -> None:
    await store.outbox.put([a_message(key="a", data=LARGE, headers={"number": str(number)})])


async def _put_until_it_is_full(store: Store, put: list[int]) -> None:
    for number in range(10 * DISK_MB):
        try:
            await _put_large(store, number)
        except StoreUnavailable:
            return
        put.append(number)
    raise AssertionError("the disk was not full")


async def _put_when_there_is_room(store: Store, put: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        number = len(put) + 1
        while len(put) < number:
            with suppress(StoreUnavailable):
                await _put_large(store, number)
                put.append(number)
                return
            await asyncio.sleep(0.1)
