"""A relay on PostgreSQL is told of commits by a waker, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from tests.servers.ports import free_port

from postroom import Message, Outbox, open_store, open_waker
from postroom.errors import StoreUnavailable
from postroom.store import Waker
from postroom.stores.postgres import PostgresStore
from postroom.tables import TableNames
from postroom.testing.contracts.watch import watched

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database) as store:
        await store.migrate()
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
        await store.put([Message("order.paid", key="7")])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(woken(), 0.5)


def test_a_waker_never_fails_though_the_database_is_away() -> None:
    with open_waker(f"postgresql://postgres@127.0.0.1:{free_port()}/nowhere") as waker:
        for _ in range(3):
            waker.wake()
    waker.wake()  # after its end, too


async def test_a_watch_on_a_database_that_is_away_says_so() -> None:
    async with open_store(f"postgresql://postgres@127.0.0.1:{free_port()}/nowhere") as away:
        with pytest.raises(StoreUnavailable, match="cannot be watched"):
            await away.watch(lambda: None)


def test_where_the_store_notices_by_itself_a_waker_has_nothing_to_do() -> None:
    for url in ("sqlite:///shop.db", "memory://"):
        with open_waker(url) as waker:
            assert type(waker) is Waker
            waker.wake()
