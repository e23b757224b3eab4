"""PostgreSQL: what `put` costs a transaction that writes one row of business data."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing.connection import Connection as Pipe
from typing import Any, Self, TypeAlias

import psycopg

from bench.postgres import shop
from bench.table import Row, ratio, take_turns
from postroom.message import Message
from postroom.outbox.outbox import Outbox

TARGET = 0.6
WRITERS = (1, 16)
INSERT = "INSERT INTO orders (customer_id, amount, note) VALUES (%s, %s, %s) RETURNING id"
NOTE = "as agreed on the phone, " * 10

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Transaction: TypeAlias = Callable[[Connection], None]
outbox = Outbox()
numbers = count()


def run(*, quick: bool) -> Iterator[Row]:
    """A row per server and number of writers: as PostgreSQL is, with fsync; then without, where nothing is hidden behind
    the disk (no target there: a second INSERT into the same business table gives 0.68 already)."""
    rounds, seconds = (3, 0.05) if quick else (16, 0.4)
    for durable in (True, False):
        with shop(durable=durable) as place:
            for writers in WRITERS:
                what = f"put, {writers} {'writer' if writers == 1 else 'writers'} ({place.server})"
                with Writers(place.url, writers) as busy:
                    pairs = take_turns(
                        what, lambda: busy.rate(sell, seconds), lambda: busy.rate(sell_and_tell, seconds), rounds=rounds
                    )
                target = TARGET if durable else None
                yield Row(what=what, base="INSERT", ours="INSERT + put", unit="tx/s", target=target, **ratio(pairs))


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
    (number,) = connection.execute(INSERT, [next(numbers) % 500, 12, NOTE]).fetchone() or (0,)
    return int(number)


class Writers:
    """Processes with a connection each, that do the same transaction over and over while they are told to.

    Processes, as a web server's workers are: sixteen threads would measure Python's lock, not the database.
    """

    def __init__(self, url: str, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Pipe] = []
        self._processes = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            self._processes.append(context.Process(target=_write, args=(url, theirs), daemon=True))

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        for pipe in self._pipes:
            pipe.recv()
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def rate(self, transaction: Transaction, seconds: float) -> float:
        """Transactions per second, all writers together."""
        begin = time.perf_counter()
        for pipe in self._pipes:
            pipe.send((transaction.__name__, seconds))
        done: int = sum(pipe.recv() for pipe in self._pipes)
        return done / (time.perf_counter() - begin)


def _write(url: str, pipe: Pipe) -> None:
    """A writer: connects, says so, and does what it is told until it is ended."""
    transactions = {each.__name__: each for each in (sell, sell_and_tell)}
    with psycopg.connect(url, autocommit=True) as connection:
        pipe.send("ready")
        while True:
            name, seconds = pipe.recv()
            pipe.send(_repeat(transactions[name], connection, time.perf_counter() + seconds))


def _repeat(transaction: Transaction, connection: Connection, end: float) -> int:
    for done in count():
        if time.perf_counter() >= end:
            return done
        transaction(connection)
    raise AssertionError
