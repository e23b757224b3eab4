"""PostgreSQL: what `put` costs a transaction that writes one row of business data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any, Self, TypeAlias

import psycopg

from bench.postgres import shop
from bench.table import Row, ratio, take_turns
from postroom.message import Message
from postroom.outbox import Outbox

TARGET = 0.6
WRITERS = (1, 16)
INSERT = "INSERT INTO orders (customer, amount) VALUES (%s, %s) RETURNING id"
NOTE = "as agreed on the phone, " * 10

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Transaction: TypeAlias = Callable[[Connection], None]
outbox = Outbox()
numbers = count()


def run(*, quick: bool) -> Iterator[Row]:
    """A row per server and number of writers: with fsync first, as PostgreSQL is; then without, which is harder."""
    rounds, seconds = (3, 0.05) if quick else (24, 0.25)
    for durable in (True, False):
        with shop(durable=durable) as place:
            for writers in WRITERS:
                what = f"put, {writers} {'writer' if writers == 1 else 'writers'} ({place.server})"
                with Writers(place.url, writers) as busy:
                    pairs = take_turns(
                        what, lambda: busy.rate(sell, seconds), lambda: busy.rate(sell_and_tell, seconds), rounds=rounds
                    )
                yield Row(what=what, base="INSERT", ours="INSERT + put", unit="tx/s", target=TARGET, **ratio(pairs))


def sell(connection: Connection) -> None:
    """The base: business data alone."""
    with connection.transaction():
        _order(connection)


def sell_and_tell(connection: Connection) -> None:
    """Ours: the same, and a message about it, of about 300 bytes."""
    with connection.transaction():
        number = _order(connection)
        outbox.put(connection, Message("order.paid", key=number, data={"order": number, "amount": 12, "note": NOTE}))


def _order(connection: Connection) -> int:
    (number,) = connection.execute(INSERT, [f"customer-{next(numbers) % 500}", 12]).fetchone() or (0,)
    return int(number)


class Writers:
    """Threads with a connection each, that do the same transaction over and over while they are told to."""

    def __init__(self, url: str, number: int) -> None:
        self._url, self._number = url, number
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._connections = [
            self._stack.enter_context(psycopg.connect(self._url, autocommit=True)) for _ in range(self._number)
        ]
        self._threads = self._stack.enter_context(ThreadPoolExecutor(self._number))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def rate(self, transaction: Transaction, seconds: float) -> float:
        """Transactions per second, all writers together."""
        begin = time.perf_counter()
        end = begin + seconds  # each thread looks at the clock itself: whatever interrupts us, they end
        done = sum(self._threads.map(lambda connection: _repeat(transaction, connection, end), self._connections))
        return done / (time.perf_counter() - begin)


def _repeat(transaction: Transaction, connection: Connection, end: float) -> int:
    for done in count():
        if time.perf_counter() >= end:
            return done
        transaction(connection)
    raise AssertionError
