"""A handler that hangs keeps no inbox from ending, and none that runs too long goes unnoticed."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.inbox.shops import TOPIC, Shop, an_inbox, paid

from postroom.contracts.inbox import DeadQuery, KnownQuery
from postroom.errors import ConfigError
from postroom.inbox import Inbox, worker
from postroom.message import Message
from postroom.transports.memory import MemoryConsumer

SHORT = timedelta(seconds=0.2)


async def ended(shop: Shop, inbox: Inbox, begun: Any) -> Any:
    """The tally of a reception that is told to end while a handler hangs."""
    running = shop.reception(inbox, grace=SHORT)
    task = asyncio.create_task(running.run())
    async with asyncio.timeout(20):
        while not begun.is_set():
            await asyncio.sleep(0.01)
        running.stop()
        return await task


async def what_comes_again(shop: Shop) -> list[object]:
    consumer = MemoryConsumer(shop.broker, TOPIC, group="billing")
    return [each.message.data for each in await consumer.receive(5, wait=timedelta(0))]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_an_async_handler_that_hangs_is_abandoned_after_the_grace_period(
    shop: Shop, caplog: pytest.LogCaptureFixture, stubborn: bool
) -> None:
    inbox, begun, message = an_inbox(), asyncio.Event(), paid(1)

    @inbox.on("*")
    async def hang(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, message.data)
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if stubborn:
                await asyncio.sleep(0.2)
            raise

    shop.send(message, paid(2))
    tally = await ended(shop, inbox, begun)
    assert tally.done == {"abandoned": 1}
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert str(message.id) in said
    assert "order.paid, key a" in said
    assert "abandoned, after" in said
    assert list(await shop.desk.effects()) == []
    assert await what_comes_again(shop) == [1, 2]


async def test_a_sync_handler_that_hangs_is_abandoned_and_commits_nothing_later(shop: Shop) -> None:
    inbox, begun, go, returned = an_inbox(), threading.Event(), threading.Event(), threading.Event()

    @inbox.on("*")
    def hang(message: Message, tx: Any) -> None:
        shop.insert(tx, message.data)
        begun.set()
        go.wait(20)
        returned.set()

    shop.send(paid(1))
    assert (await ended(shop, inbox, begun)).done == {"abandoned": 1}
    assert await what_comes_again(shop) == [1]
    go.set()
    assert returned.wait(20)
    again, well = an_inbox(), list[object]()
    again.on("*")(lambda message, tx: well.append(message.data))
    shop.send(paid(2))
    await shop.receive(again)
    assert well, "no lock is left behind"
    assert list(await shop.desk.effects()) == []


@pytest.mark.parametrize("swallows", [False, True])
async def test_an_async_handler_that_runs_longer_than_the_timeout_has_failed(shop: Shop, swallows: bool) -> None:
    inbox, calls = an_inbox(timeout=timedelta(seconds=0.1)), list[object]()

    @inbox.on("*")
    async def slow(message: Message, tx: Any) -> None:
        calls.append(message.data)
        if message.data == "slow":
            await shop.ainsert(tx, message.data)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not swallows:
                    raise
        else:
            await shop.ainsert(tx, message.data)

    shop.send(paid("slow"), paid("next"))
    async with asyncio.timeout(20):
        tally = await shop.receive(inbox)
    assert (tally.done["failed"], tally.done["dead"], tally.done["handled"]) == (2, 1, 1)
    assert calls == ["slow"] * 3 + ["next"]
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert dead.code == "MAX_ATTEMPTS"
    assert dead.error.startswith("HANDLER_TIMEOUT: ")
    assert "longer than 100ms" in dead.error
    assert list(await shop.desk.effects()) == ["next"]


async def test_a_time_out_of_the_handlers_own_is_an_error_like_any_other(shop: Shop) -> None:
    inbox = an_inbox(timeout=timedelta(seconds=30))

    @inbox.on("*")
    async def fail(message: Message, tx: Any) -> None:
        raise TimeoutError("the bank does not answer")

    shop.send(paid(1))
    await shop.receive(inbox)
    assert "HANDLER_ERROR: TimeoutError: the bank" in (await shop.desk.store.dead(DeadQuery()))[0].error


async def test_a_sync_handler_that_runs_longer_than_the_timeout_is_told_of_once_and_counts_as_it_ends(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CARE_SECONDS", 0.05)
    inbox, message = an_inbox(timeout=timedelta(seconds=0.1)), paid(1)

    @inbox.on("*")
    def slow(message: Message, tx: Any) -> None:
        threading.Event().wait(0.6)
        shop.insert(tx, message.data)

    shop.send(message)
    assert (await shop.receive(inbox)).done == {"handled": 1}
    (said,) = [record.getMessage() for record in caplog.records]
    assert str(message.id) in said
    assert "has been running for" in said
    (known,) = await shop.desk.store.known(KnownQuery())
    assert (known.outcome, known.attempts) == ("handled", 1)


def test_a_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="give it some time"):
        an_inbox(timeout=timedelta(0))
