"""A service that sells at a steady pace: one transaction, one message each."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.stores import open_waker
from postroom.stores.sqlite.url import path_of

PER_SECOND = 100
KEYS = 5_000


@dataclass(frozen=True, slots=True)
class Plan:
    """So many to warm up and so many that count, 100 a second; then some alone, each after a quiet time in seconds."""

    warm: int
    flow: int
    lone: int
    quiet: float

    @property
    def total(self) -> int:
        return self.warm + self.flow + self.lone


def produce(url: str, plan: Plan) -> list[float]:
    """Write them; the moment each commit returned."""
    with _seller(url) as sell:
        begin = time.monotonic()
        committed = [_at(begin + number / PER_SECOND, sell, number) for number in range(plan.warm + plan.flow)]
        alone = range(plan.warm + plan.flow, plan.total)
        return committed + [_at(time.monotonic() + plan.quiet, sell, number) for number in alone]


def _at(moment: float, sell: Callable[[int], None], number: int) -> float:
    time.sleep(max(moment - time.monotonic(), 0))
    sell(number)
    return time.monotonic()


@contextmanager
def _seller(url: str) -> Iterator[Callable[[int], None]]:
    connection: Any
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(path_of(url), isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous = FULL")
    else:
        connection = psycopg.connect(url, autocommit=True)
    outbox, waker = Outbox(), open_waker(url)

    def sell(number: int) -> None:
        connection.execute("BEGIN IMMEDIATE" if isinstance(connection, sqlite3.Connection) else "BEGIN")
        outbox.put(connection, Message("order.paid", key=f"order-{number % KEYS}", data={"number": number}))
        connection.execute("COMMIT")
        waker.wake()

    try:
        yield sell
    finally:
        waker.close()
        connection.close()
