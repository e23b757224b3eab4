"""SQLite, as durable as it gets (WAL, synchronous=FULL): `put_many` against executemany, and what one put costs."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.messages import messages
from bench.table import Row, ratio, take_turns
from postroom.config.values import TableNames
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.stores import open_store
from postroom.stores.sql.insert import put_statement

TARGET = 0.5
ORDERS = """
CREATE TABLE orders (
    id          INTEGER PRIMARY KEY,
    customer    TEXT NOT NULL,
    amount      NUMERIC NOT NULL,
    created_at  TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""
INSERT = "INSERT INTO orders (customer, amount) VALUES (?, ?)"
NOTE = "as agreed on the phone, " * 10
outbox = Outbox()


def run(*, quick: bool) -> Iterator[Row]:
    """Two rows: many messages in one transaction; and one with its business data, for information."""
    with TemporaryDirectory(prefix="postroom-bench-") as folder:
        path = Path(folder) / "shop.db"
        asyncio.run(migrate(path))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {ORDERS}")
            yield _many(connection, *((100, 3) if quick else (10_000, 15)))
            yield _one(connection, *((5, 3) if quick else (50, 24)))


def _many(connection: sqlite3.Connection, number: int, rounds: int) -> Row:
    batch = messages(number)
    statement = put_statement("sqlite", "qmark", TableNames(), batch)
    what = f"{number:,} messages (SQLite {sqlite3.sqlite_version}, WAL, FULL)"

    def timed(write: Callable[[], object]) -> float:
        connection.execute("DELETE FROM outbox")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        write()
        connection.execute("COMMIT")
        return number / (time.perf_counter() - begin)

    pairs = take_turns(
        what,
        lambda: timed(lambda: connection.executemany(statement.sql, statement.rows)),
        lambda: timed(lambda: outbox.put_many(connection, batch)),
        rounds=rounds,
    )
    return Row(what=what, base="executemany", ours="put_many", unit="rows/s", target=TARGET, **ratio(pairs))


def _one(connection: sqlite3.Connection, transactions: int, rounds: int) -> Row:
    what = f"put (SQLite {sqlite3.sqlite_version}, WAL, FULL)"

    def timed(*, tell: bool) -> float:
        begin = time.perf_counter()
        for number in range(transactions):
            _sell(connection, number, tell=tell)
        return transactions / (time.perf_counter() - begin)

    pairs = take_turns(what, lambda: timed(tell=False), lambda: timed(tell=True), rounds=rounds)
    return Row(what=what, base="INSERT", ours="INSERT + put", unit="tx/s", **ratio(pairs))


def _sell(connection: sqlite3.Connection, number: int, *, tell: bool) -> None:
    connection.execute("BEGIN IMMEDIATE")
    order = connection.execute(INSERT, [f"customer-{number % 500}", 12]).lastrowid
    if tell:
        outbox.put(connection, Message("order.paid", key=order, data={"order": order, "amount": 12, "note": NOTE}))
    connection.execute("COMMIT")


async def migrate(path: Path) -> None:
    """Make the file, with the tables in it."""
    async with open_store(f"sqlite:///{path}") as store:
        await store.schema.migrate()
