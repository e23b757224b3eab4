"""What is special about handling in a transaction on MariaDB and MySQL."""

# ruff: noqa: PT012 - what is refused here is a whole transaction
from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncmy
import pymysql
import pytest
from tests.conformance.inbox.desks import MariaDBDesk, mariadb_desk
from tests.servers.mariadb import connect

from postroom.contracts.inbox import Transaction
from postroom.contracts.transport import Identity
from postroom.errors import MissingDependency, SchemaMismatch, StoreError, StoreUnavailable
from postroom.stores import open_store
from postroom.stores.mysql import blocking_connections, inbox_connections
from postroom.testing.contracts.inbox import an_event

LOW, HIGH = (Identity("shop", UUID(int=number)) for number in (1, 2))


@pytest.fixture
async def desk(mariadb_database: str) -> AsyncIterator[MariaDBDesk]:
    async with mariadb_desk(mariadb_database) as desk:
        yield desk


@contextmanager
def another(desk: MariaDBDesk) -> Iterator[pymysql.Connection[Any]]:
    """Somebody else's connection."""
    connection = connect(desk.url)
    try:
        yield connection
    finally:
        with suppress(pymysql.Error):
            connection.close()


def kill(desk: MariaDBDesk, thread: int) -> None:
    with another(desk) as connection:
        connection.query(f"KILL {thread}")


async def ask(handle: Any, sql: str) -> Any:
    cursor = handle.cursor()
    await cursor.execute(sql)
    return await cursor.fetchall()


def ask_blocking(handle: Any, sql: str) -> Any:
    with handle.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def handled(event: Identity) -> str:
    """What somebody else writes who handles it."""
    return (
        "INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at)"
        f" VALUES ('billing', '{event.source}', '{event.id}', 'handled', 1, now())"
    )


# ── whole, or not ──


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "CREATE TABLE other (id int)"])
async def test_a_transaction_that_the_handler_ended_is_not_whole(desk: MariaDBDesk, end: str) -> None:
    with pytest.raises(StoreError, match="over before its end"):
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            assert tx.is_whole()
            await ask(tx.handle, end)
            assert not tx.is_whole()


async def test_the_same_for_a_sync_handler(desk: MariaDBDesk) -> None:
    with pytest.raises(StoreError, match="over before its end"), desk.store.blocking() as tx:
        tx.remember("billing", [LOW])
        assert tx.is_whole()
        tx.handle.commit()
        assert not tx.is_whole()


async def test_a_broken_connection_is_the_database_away(desk: MariaDBDesk) -> None:
    with pytest.raises(asyncmy.errors.MySQLError):
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            kill(desk, tx.handle.thread_id())
            try:
                await ask(tx.handle, "SELECT 1")
            finally:
                await asyncio.sleep(0.05)
                assert tx.is_away()
    async with desk.store.transaction() as tx:
        assert await tx.remember("billing", [LOW]) == {LOW}


async def test_a_broken_connection_of_a_sync_handler_too(desk: MariaDBDesk) -> None:
    with pytest.raises(pymysql.MySQLError), desk.store.blocking() as tx:
        tx.remember("billing", [LOW])
        kill(desk, tx.handle.thread_id())
        try:
            ask_blocking(tx.handle, "SELECT 1")
        finally:
            assert tx.is_away()


async def test_a_connection_that_breaks_before_the_commit_is_the_database_away(desk: MariaDBDesk) -> None:
    with pytest.raises(StoreUnavailable):
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            kill(desk, tx.handle.thread_id())
    assert await desk.store.counts() == {}


async def test_a_connection_that_was_ended_while_idle_is_replaced(desk: MariaDBDesk) -> None:
    async with desk.store.transaction() as tx:
        thread = tx.handle.thread_id()
    with desk.store.blocking() as blocking_connections:
        blocking_thread = blocking_connections.handle.thread_id()
    for each in (thread, blocking_thread):
        kill(desk, each)
    async with desk.store.transaction() as tx:
        assert tx.handle.thread_id() != thread
        assert await tx.remember("billing", [LOW]) == {LOW}
    with desk.store.blocking() as blocking_connections:
        assert blocking_connections.remember("billing", [LOW]) == set()


# ── lost to another transaction ──


async def lose(desk: MariaDBDesk, tx: Transaction, other: pymysql.Connection[Any]) -> None:
    """Have *tx*, which has written little, lose a deadlock to *other*, which has written much."""
    ask_blocking(other, "UPDATE effects SET name = 'other' WHERE id = 1")
    ask_blocking(other, "INSERT INTO effects (name) SELECT seq FROM seq_1_to_500")
    await ask(tx.handle, "UPDATE effects SET name = 'mine' WHERE id = 2")
    waits = asyncio.create_task(
        asyncio.to_thread(ask_blocking, other, "UPDATE effects SET name = 'other' WHERE id = 2")
    )
    await asyncio.sleep(0.2)
    try:
        await ask(tx.handle, "UPDATE effects SET name = 'mine' WHERE id = 1")
    finally:
        await waits
        other.rollback()


async def with_two_rows(desk: MariaDBDesk) -> None:
    async with desk.store.transaction() as tx:
        for name in ("one", "two"):
            await desk.write(tx.handle, name)


async def test_a_deadlock_of_the_handlers_own_comes_out_as_the_driver_said_it(desk: MariaDBDesk) -> None:
    await with_two_rows(desk)
    with another(desk) as other, pytest.raises(asyncmy.errors.OperationalError, match="Deadlock"):
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            await lose(desk, tx, other)
    assert await desk.store.counts() == {}
    assert list(await desk.effects()) == ["one", "two"]


async def test_a_deadlock_that_the_handler_keeps_to_itself_is_not_taken_for_done(desk: MariaDBDesk) -> None:
    """The server rolled all of it back: to commit now would lose the message without a word."""
    await with_two_rows(desk)
    with another(desk) as other, pytest.raises(StoreError, match="went on after a deadlock"):
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            with suppress(asyncmy.errors.OperationalError):
                await lose(desk, tx, other)
    assert await desk.store.counts() == {}


async def test_remembering_that_loses_begins_anew_where_nothing_else_was_done(desk: MariaDBDesk) -> None:
    with another(desk) as other:
        ask_blocking(other, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        other.begin()
        ask_blocking(other, "INSERT INTO effects (name) SELECT seq FROM seq_1_to_500")
        ask_blocking(other, handled(HIGH))
        async with desk.store.transaction() as tx:
            remembering = asyncio.create_task(tx.remember("billing", [LOW, HIGH]))
            await asyncio.sleep(0.2)
            taken = asyncio.create_task(asyncio.to_thread(ask_blocking, other, handled(LOW)))
            await taken
            other.commit()
            assert await remembering == set()


async def test_remembering_that_loses_after_other_work_is_the_database_away(desk: MariaDBDesk) -> None:
    with another(desk) as other:
        other.begin()
        ask_blocking(other, handled(LOW))
        with pytest.raises(StoreUnavailable):
            async with desk.store.transaction() as tx:
                await desk.write(tx.handle, "before")
                await ask(tx.handle, "SET innodb_lock_wait_timeout = 1")
                await tx.remember("billing", [LOW])
        other.rollback()
    assert list(await desk.effects()) == []


@pytest.mark.parametrize("how", ["transaction", "blocking"])
async def test_whoever_waited_for_as_long_as_the_server_lets_it_is_not_made_to_wait_again(
    desk: MariaDBDesk, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    impatient = "SET SESSION innodb_lock_wait_timeout = 1"
    for module in (inbox_connections, blocking_connections):
        monkeypatch.setattr(module, "ISOLATION", impatient)

    def second() -> None:
        with desk.store.blocking() as tx:
            tx.remember("billing", [LOW])

    begin = time.monotonic()
    with another(desk) as other:
        other.begin()
        ask_blocking(other, handled(LOW))
        with pytest.raises(StoreUnavailable, match="Lock wait timeout"):
            if how == "blocking":
                await asyncio.to_thread(second)
            else:
                async with desk.store.transaction() as tx:
                    await tx.remember("billing", [LOW])
    assert 0.9 < time.monotonic() - begin < 4


# ── the handler's connection ──


async def test_a_handler_reads_as_its_driver_reads(desk: MariaDBDesk) -> None:
    async with desk.store.transaction() as tx:
        ((moment, level),) = await ask(tx.handle, "SELECT CAST('2026-11-15 12:00:00' AS datetime), @@tx_isolation")
    assert (moment, level) == (datetime(2026, 11, 15, 12), "READ-COMMITTED")  # noqa: DTZ001 - the driver knows no zone


async def test_without_pymysql_a_sync_handler_is_refused_and_an_async_one_is_not(
    desk: MariaDBDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with (
        pytest.raises(MissingDependency, match=r"need the driver PyMySQL.*`pip install PyMySQL`"),
        desk.store.blocking(),
    ):
        pass
    async with desk.store.transaction() as tx:
        assert await tx.remember("billing", [LOW]) == {LOW}


async def test_missing_tables_are_said_with_the_command_to_type(mariadb_database: str) -> None:
    async with open_store(mariadb_database.replace("mysql://", "mariadb://")) as opened:
        inbox = opened.inbox
        with pytest.raises(SchemaMismatch, match="postroom init --store"):
            await inbox.schema.check()
        with pytest.raises(SchemaMismatch, match="postroom init --store"):
            async with inbox.transaction() as tx:
                await tx.remember("billing", [an_event()])


async def test_a_server_that_is_away_is_said(mariadb_database: str) -> None:
    nobody = mariadb_database.rpartition("/")[0].rpartition(":")[0] + ":1/shop"
    async with open_store(nobody) as opened:
        inbox = opened.inbox
        with pytest.raises(StoreUnavailable, match="check that it runs"):
            async with inbox.transaction():
                pass
        with pytest.raises(StoreUnavailable, match="check that it runs"), inbox.blocking():
            pass
