"""Producers: threads that write an order and its messages in one transaction, over and over; some of it is rolled back."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import psycopg

from postroom import Message, Outbox
from postroom.testing.journal import Name

KEYS = 12
SHOPPERS = 3
BACKLOG_MOST = 250
"""They wait when so many messages are ahead of the deliveries: the run tests invariants, not speed."""


class Shoppers:
    """Each has keys of its own, so that the order within a key is known; their transactions overlap."""

    def __init__(self, url: str, journal: Path, seed: str) -> None:
        self.committed: list[Name] = []
        self.rolled_back: list[Name] = []
        self._url, self._journal = url, journal
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(seed, shopper)) for shopper in range(SHOPPERS)]

    def __enter__(self) -> Self:
        with closing(connect(self._url)) as connection:
            connection.execute("CREATE TABLE orders (key TEXT, number INTEGER)")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let each end its transaction; raise what went wrong in one."""
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), "a producer hangs"
        if self._errors:
            raise self._errors.pop()

    def orders(self) -> set[Name]:
        """The business rows that are there: what committed, by the database's own word."""
        with closing(connect(self._url)) as connection:
            return {Name(*row) for row in connection.execute("SELECT key, number FROM orders").fetchall()}

    def _run(self, seed: str, shopper: int) -> None:
        dice = random.Random(f"{seed}:{shopper}")
        keys = [f"k{key}" for key in range(shopper, KEYS, SHOPPERS)]
        last = dict.fromkeys(keys, 0)
        try:
            with closing(connect(self._url)) as connection:
                while not self._stop.wait(dice.uniform(0.02, 0.12)):
                    if self._backlog() > BACKLOG_MOST:
                        continue
                    names = [_next(last, dice.choice(keys)) for _ in range(dice.randint(1, 5))]
                    keep = dice.random() > 0.1
                    self._shop(connection, names, keep=keep)
                    (self.committed if keep else self.rolled_back).extend(names)
        except BaseException as exc:
            self._errors.append(exc)

    def _shop(self, connection: Any, names: list[Name], *, keep: bool) -> None:
        lite = isinstance(connection, sqlite3.Connection)
        connection.execute("BEGIN IMMEDIATE" if lite else "BEGIN")
        for name in names:
            connection.execute(f"INSERT INTO orders VALUES ({'?, ?' if lite else '%s, %s'})", name)
            Outbox().put(connection, Message("order.paid", key=name.key, data=name.number))
        connection.execute("COMMIT" if keep else "ROLLBACK")

    def _backlog(self) -> int:
        return len(self.committed) - self._journal.read_bytes().count(b"\n")


def connect(url: str) -> Any:
    """A connection as a service holds one; patient, since a relay may be stopped with SQLite's lock in its hand."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    return psycopg.connect(url, autocommit=True)  # BEGIN and COMMIT are written out


def _next(last: dict[str, int], key: str) -> Name:
    last[key] += 1
    return Name(key, last[key])
