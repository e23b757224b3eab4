"""A handler that ends its transaction itself: somebody hears of it, it is not tried for ever, and no effect is repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conformance.inbox.desks import mariadb_desk, mongo_desk, postgres_desk, sqlite_desk
from tests.unit.inbox.shops import Shop, an_inbox, paid

from postroom.contracts.inbox import DeadDelivery, DeadQuery
from postroom.inbox import RejectMessage
from postroom.message import Message
from postroom.testing.contracts.inbox import ENDS, End

DESKS: dict[str, Any] = {"postgres": postgres_desk, "mariadb": mariadb_desk, "mongo": mongo_desk}


@pytest.fixture(params=["sqlite", *DESKS])
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop on each database."""
    if request.param == "sqlite":
        async with sqlite_desk(tmp_path / "shop.db") as file:
            yield Shop(file)
        return
    async with DESKS[request.param](request.getfixturevalue(f"{request.param}_database")) as desk:
        yield Shop(desk)


async def dead_ones(shop: Shop) -> list[DeadDelivery]:
    return list(await shop.desk.store.dead(DeadQuery()))


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_that_commits_and_then_fails_is_dead_and_its_effect_happens_once(
    anywhere: Shop, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shop, inbox, calls = anywhere, an_inbox(), list[str]()

    async def commit(message: Message, tx: Any) -> None:
        calls.append("called")
        await shop.ainsert(tx, message.data)
        await shop.desk.end(tx, "commit")
        raise OSError("the bank is closed")

    def commit_in_a_thread(message: Message, tx: Any) -> None:
        calls.append("called")
        shop.insert(tx, message.data)
        shop.desk.end_blocking(tx, "commit")
        raise OSError("the bank is closed")

    inbox.on("*")(commit if is_async else commit_in_a_thread)
    message = paid(1)
    shop.send(message)
    tally = await shop.receive(inbox)
    assert (tally.done["dead"], tally.done["known"]) == (1, 0)
    (dead,) = await dead_ones(shop)
    assert (dead.message.id, dead.code) == (message.id, "BROKEN_TRANSACTION")
    assert "ended the transaction itself" in dead.error
    assert "the bank is closed" in dead.error
    assert any(record.levelno == logging.ERROR and str(message.id) in record.message for record in caplog.records)
    shop.send(message)
    await shop.receive(inbox)
    assert calls == ["called"]
    assert list(await shop.desk.effects()) == ["1"]


async def test_a_handler_that_commits_and_returns_is_dead_too(anywhere: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    async def commit(message: Message, tx: Any) -> None:
        await anywhere.ainsert(tx, message.data)
        await anywhere.desk.end(tx, "commit")

    anywhere.send(paid(1))
    assert (await anywhere.receive(inbox)).done == {"dead": 1}
    assert [each.code for each in await dead_ones(anywhere)] == ["BROKEN_TRANSACTION"]


async def test_a_handler_that_commits_and_then_refuses_the_message_is_seen(anywhere: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    def commit(message: Message, tx: Any) -> None:
        anywhere.desk.end_blocking(tx, "commit")
        raise RejectMessage("no such order")

    anywhere.send(paid(1))
    await anywhere.receive(inbox)
    assert [each.code for each in await dead_ones(anywhere)] == ["BROKEN_TRANSACTION"]


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_that_closes_its_handle_has_failed_and_is_given_up(
    anywhere: Shop, is_async: bool, raises: bool
) -> None:
    shop, inbox = anywhere, an_inbox()

    async def close(message: Message, tx: Any) -> None:
        await shop.desk.end(tx, "close")
        if raises:
            await shop.ainsert(tx, message.data)

    def close_in_a_thread(message: Message, tx: Any) -> None:
        shop.desk.end_blocking(tx, "close")
        if raises:
            shop.insert(tx, message.data)

    inbox.on("*")(close if is_async else close_in_a_thread)
    shop.send(paid(1))
    async with asyncio.timeout(30):
        tally = await shop.receive(inbox)
    assert (tally.done["failed"], tally.done["dead"]) == (2, 1)
    (dead,) = await dead_ones(shop)
    assert (dead.code, dead.attempts) == ("MAX_ATTEMPTS", 3)
    assert "BROKEN_TRANSACTION" in dead.error


@pytest.mark.parametrize("end", ENDS)
async def test_a_batch_whose_handler_ends_the_transaction_is_not_silently_known(anywhere: Shop, end: End) -> None:
    inbox = an_inbox()

    @inbox.on("*", batch=10)
    async def handle(messages: list[Message], tx: Any) -> None:
        for message in messages:
            await anywhere.ainsert(tx, message.data)
        await anywhere.desk.end(tx, end)
        raise OSError("the bank is closed")

    anywhere.send(paid(1), paid(2))
    tally = await anywhere.receive(inbox)
    assert (tally.done["dead"], tally.done["known"]) == (2, 0)
    assert list(await anywhere.desk.effects()) == (["1", "2"] if end == "commit" else [])


@pytest.mark.parametrize("statement", ["executescript", "DDL"])
async def test_a_statement_that_commits_is_seen(anywhere: Shop, statement: str) -> None:
    name = anywhere.desk.opened.capabilities.name
    if (statement, name) not in (("executescript", "sqlite"), ("DDL", "mysql")):
        pytest.skip("there it does not commit")
    inbox = an_inbox()

    @inbox.on("*")
    def handle(message: Message, tx: Any) -> None:
        anywhere.insert(tx, message.data)
        if name == "sqlite":
            tx.executescript("CREATE TABLE other (id int)")
        else:
            tx.cursor().execute("CREATE TABLE other (id int)")
        raise OSError("the bank is closed")

    anywhere.send(paid(1))
    await anywhere.receive(inbox)
    assert [each.code for each in await dead_ones(anywhere)] == ["BROKEN_TRANSACTION"]
    assert list(await anywhere.desk.effects()) == ["1"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_on_postgres_a_connection_that_breaks_is_still_an_outage(postgres_database: str, is_async: bool) -> None:
    async with postgres_desk(postgres_database) as desk:
        shop, inbox, calls = Shop(desk), an_inbox(), list[int]()

        def cut(tx: Any) -> None:
            calls.append(1)
            if len(calls) == 1:
                with psycopg.connect(postgres_database, autocommit=True) as other:
                    other.execute("SELECT pg_terminate_backend(%s)", [tx.info.backend_pid])

        async def handle(message: Message, tx: Any) -> None:
            cut(tx)
            await shop.ainsert(tx, message.data)

        def handle_in_a_thread(message: Message, tx: Any) -> None:
            cut(tx)
            shop.insert(tx, message.data)

        inbox.on("*")(handle if is_async else handle_in_a_thread)
        shop.send(paid(1))
        tally = await shop.receive(inbox)
        assert tally.done == {"handled": 1}
        assert len(calls) == 2
        assert list(await desk.effects()) == ["1"]
