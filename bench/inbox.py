"""What an inbox costs: effects written in batches of 500 by a handler, each once, to the same effects with no inbox at all.

Both sides write the same rows to the same business table with the same statement, on PostgreSQL, durably. The base takes the
messages from a list; ours from a broker in memory, through the whole reception."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from bench.postgres import shop
from bench.process import Process
from bench.table import Row, ratio, take_turns
from postroom.clock import monotonic
from postroom.inbox import Inbox, InboxWorker
from postroom.message import Message
from postroom.stores import open_store
from postroom.transports.memory import MemoryBroker, MemoryConsumer

TARGET = 0.5
BATCH = 500
EFFECT = """
INSERT INTO orders (customer_id, amount, note)
SELECT 1, paid.amount, paid.note FROM unnest(%s::numeric[], %s::text[]) AS paid (amount, note)
"""
"""One statement a batch: as fast as a handler can write. A row at a time would make the inbox look cheaper."""
QUIET = timedelta(seconds=0.2)


def run(*, quick: bool) -> Iterator[Row]:
    """One row."""
    number, rounds = (2_000, 1) if quick else (30_000, 7)
    with shop(durable=not quick) as place, Process() as base, Process() as ours:
        what = f"handle {number:,} messages, {BATCH} at a time ({place.server})"
        pairs = take_turns(
            what,
            lambda: number / base.call(without_an_inbox, place.url, number),
            lambda: number / ours.call(with_an_inbox, place.url, number),
            rounds=rounds,
        )
        yield Row(what=what, base="no inbox", ours="inbox", unit="msg/s", target=TARGET, **ratio(pairs))


def without_an_inbox(url: str, number: int) -> float:
    """The seconds that the effects alone take."""
    messages = _messages(url, number)

    async def write() -> float:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            begin = monotonic()
            for start in range(0, number, BATCH):
                async with connection.transaction():
                    await write_effects(messages[start : start + BATCH], connection)
            return monotonic() - begin

    return _checked(asyncio.run(write()), url, number)


def with_an_inbox(url: str, number: int) -> float:
    """The seconds that they take through a reception."""
    messages = _messages(url, number)
    inbox = Inbox("bench")
    inbox.on("*", batch=BATCH)(write_effects)

    async def receive() -> float:
        broker = MemoryBroker()
        broker.topics["orders"] += messages
        async with open_store(url) as store:
            reception = InboxWorker(inbox, store, MemoryConsumer(broker, "orders", group="bench"))
            begin = monotonic()
            await reception.run(until_idle=QUIET)
            # It waits for a while whether more comes, and says so when that is over; the wait is not work.
            return reception.last_done - begin

    return _checked(asyncio.run(receive()), url, number)


async def write_effects(messages: Sequence[Message], tx: Any) -> None:
    """The handler."""
    await tx.execute(EFFECT, [[each.data["amount"] for each in messages], [each.key for each in messages]])


def _messages(url: str, number: int) -> list[Message]:
    """Messages that were never seen before, and an empty table for their effects."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE orders, inbox")
        connection.execute("CHECKPOINT")
    return [Message("order.paid", key=f"order-{n}", data={"amount": n % 100}) for n in range(number)]


def _checked(seconds: float, url: str, number: int) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM orders").fetchone()
    if row is None or row[0] != number:
        raise AssertionError(f"{row} effects are there, not {number:,}")
    return seconds
