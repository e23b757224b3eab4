"""Eight producers beside a draining relay on MariaDB: nobody waits long for a lock, and nobody is told to try again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from tests.servers.mariadb import connect

from bench import engine
from bench.others import mariadb
from bench.process import Process
from bench.table import Row, progress, value
from postroom.message import Message
from postroom.outbox.outbox import Outbox

PRODUCERS = 8
SECONDS = 60.0
WAIT_MS = 200.0
AGAIN = {1205: "lock wait time-out", 1213: "deadlock", 1020: "record changed"}
NOTE = "as agreed on the phone, " * 10


@dataclass(frozen=True, slots=True)
class Sold:
    """What one producer did: how many transactions, and how many of them it was told to try again."""

    transactions: int
    again: int
    longest: float
    """Milliseconds that its longest transaction took; waiting for a core and for the disk are in it."""


def run(*, quick: bool) -> Iterator[Row]:
    """What was refused; how long anybody waited for a lock, by the server's own word; and the longest transaction."""
    seconds = 2.0 if quick else SECONDS
    with mariadb() as shop, closing(connect(shop.url)) as admin, ExitStack() as ending:
        _prepare(admin)
        progress(f"{PRODUCERS} producers beside a relay for {seconds:g} s")
        relay = ending.enter_context(Process())
        producers = [ending.enter_context(Process()) for _ in range(PRODUCERS)]
        for process in (relay, *producers):
            process.call(be_ready)
        relay.begin(engine.drain_for, engine.Work(store=shop.url, to="null://", published=1), seconds)
        for number, producer in enumerate(producers):
            producer.begin(sell_for, shop.url, number, seconds)
        sold = [producer.answer() for producer in producers]
        drained = relay.answer()
        rate = sum(each.transactions for each in sold) / seconds
        what = f"{PRODUCERS} producers, {rate:,.0f} tx/s, beside a relay ({shop.server})"
        if drained < (1 if quick else sum(each.transactions for each in sold) / 2):
            raise AssertionError(f"the relay carried {drained:,} messages: it was hardly in the producers' way")
        yield value(
            what, "refused or deadlocked", sum(each.again for each in sold) + _deadlocks(admin), "times", target=0
        )
        yield value(what, "longest wait for a lock", _longest_wait(admin), "ms", target=WAIT_MS)
        yield value(what, "longest transaction", max(each.longest for each in sold), "ms")


def be_ready() -> None:
    """Asked of each process first: by its answer it has imported what it needs, and they begin together."""


def sell_for(url: str, producer: int, seconds: float) -> Sold:
    """Orders and messages, one transaction after the other, over keys that all producers share."""
    import pymysql

    outbox, transactions, again, longest = Outbox(), 0, 0, 0.0
    with closing(connect(url)) as connection:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            try:
                connection.begin()
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO orders (amount, note) VALUES (%s, %s)", (12, NOTE))
                key = f"order-{transactions * (producer + 1) % 500}"
                outbox.put(connection, Message("order.paid", key=key, data={"amount": 12, "note": NOTE}))
                connection.commit()
                transactions += 1
            except pymysql.MySQLError as exc:
                if exc.args[0] not in AGAIN:
                    raise
                connection.rollback()
                again += 1
            longest = max(longest, time.monotonic() - begin)
    return Sold(transactions, again, longest * 1000)


def _prepare(admin: Any) -> None:
    with admin.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, amount INT, note TEXT) ENGINE=InnoDB"
        )


def _deadlocks(admin: Any) -> int:
    return int(_status(admin, "Innodb_deadlocks"))


def _longest_wait(admin: Any) -> float:
    """Since the server started, which was for this."""
    return float(_status(admin, "Innodb_row_lock_time_max"))


def _status(admin: Any, name: str) -> str:
    with admin.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
        return str(cursor.fetchone()[1])
