"""A relay on PostgreSQL is told of commits by a waker, and only then."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import psycopg
import pytest
from tests.servers.ports import free_port

from postroom import Message, Outbox, open_store, open_waker
from postroom.config.tables import TableNames
from postroom.contracts.store import Waker
from postroom.errors import StoreUnavailable
from postroom.stores.postgres import PostgresStore
from postroom.testing.contracts.watch import watched


@pytest.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database) as store:
        await store.schema.migrate()
        yield store


async def test_a_waker_called_after_the_commit_wakes_whoever_watches(
    store: PostgresStore, postgres_database: str
) -> None:
    with psycopg.connect(postgres_database) as connection, open_waker(postgres_database) as waker:
        async with watched(store) as woken:
            with connection.transaction():
                Outbox().put(connection, Message("order.paid", key="7"))
            for _ in range(3):
                waker.wake()
                await woken()


async def test_what_was_asked_for_just_before_the_end_is_still_sent(
    store: PostgresStore, postgres_database: str
) -> None:
    async with watched(store) as woken:
        with open_waker(postgres_database) as waker:
            waker.wake()
        await woken()


async def test_a_waker_of_other_tables_wakes_nobody_here(store: PostgresStore, postgres_database: str) -> None:
    async with watched(store) as woken:
        with open_waker(postgres_database, tables=TableNames(prefix="another")) as waker:
            waker.wake()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(woken(), 0.5)


async def test_a_put_alone_notifies_nobody_from_within_its_transaction(
    store: PostgresStore, postgres_database: str
) -> None:
    """NOTIFY in the producer's transaction would make all commits of the database wait for each other."""
    async with watched(store) as woken:
        await store.outbox.put([Message("order.paid", key="7")])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(woken(), 0.5)


def test_a_waker_never_fails_though_the_database_is_away() -> None:
    with open_waker(f"postgresql://postgres@127.0.0.1:{free_port()}/nowhere") as waker:
        for _ in range(3):
            waker.wake()
    waker.wake()  # after its end, too


FORKED = """
import os, sys, threading
from postroom import open_waker

waker = open_waker(sys.argv[1])
waker.wake()
sys.stdin.readline()  # it has a thread and a connection by now
held, forked = threading.Event(), threading.Event()

def hold():
    with waker._news:  # as its own thread does now and then: in the child, nobody would ever let go
        held.set()
        forked.wait()

threading.Thread(target=hold).start()
held.wait()
if (child := os.fork()) == 0:
    waker.wake()
    waker.close()  # sends what was asked for
    os._exit(0)
forked.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
sys.stdin.readline()
waker.wake()
waker.close()
"""
"""As a prefork server does: the parent opens the waker, and a worker uses it."""


async def test_after_a_fork_the_child_wakes_as_well_as_the_parent(store: PostgresStore, postgres_database: str) -> None:
    async with watched(store) as woken:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, postgres_database),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin
        try:
            await woken()
            for _ in ("child", "parent"):
                process.stdin.write(b"\n")
                await woken()
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # the child, too
                await process.wait()
    assert (process.returncode, said) == (0, b"")


async def test_a_watch_on_a_database_that_is_away_says_so() -> None:
    async with open_store(f"postgresql://postgres@127.0.0.1:{free_port()}/nowhere") as away:
        with pytest.raises(StoreUnavailable, match="cannot be watched"):
            await away.outbox.watch(lambda: None)


def test_where_the_store_notices_by_itself_a_waker_has_nothing_to_do() -> None:
    for url in ("sqlite:///shop.db", "memory://"):
        with open_waker(url) as waker:
            assert type(waker) is Waker
            waker.wake()
