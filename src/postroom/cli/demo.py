"""`postroom demo`: a small shop, so that a newcomer sees what an outbox is for."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from postroom.cli.output import Column, write, write_table
from postroom.message import Message
from postroom.outbox import Outbox
from postroom.store import Query, Record
from postroom.stores import open_store

ORDERS = [("order-1", "Ada", 120), ("order-2", "Grace", 80), ("order-3", "Edsger", 9_999), ("order-4", "Barbara", 45)]
CREDIT = 1_000
"""Nobody may owe more; an order above it is rolled back."""


class CreditRefused(Exception):
    """The shop's own error: the order is too large."""


@click.command(short_help="Watch orders and their messages commit together, and vanish together.")
def demo() -> None:
    """A small shop on SQLite takes four orders. Each writes a row and puts a message, in one transaction; one of them is
    refused half-way, and rolled back. At the end the tables say what is there: as many messages as orders, no more, no less.

    \b
    Examples:
      postroom demo
    """
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        path = Path(folder) / "shop.db"
        write(f"A shop on SQLite, in {path}")
        connection = _open_shop(path)
        for order in ORDERS:
            _take(connection, *order)
        orders = connection.execute("SELECT id FROM orders ORDER BY id").fetchall()
        connection.close()
        messages = asyncio.run(_messages(path))
        _show(messages)
        if [key for (key,) in orders] != [record.message.key for record in messages]:
            raise click.ClickException("the orders and the messages differ: that must never happen; please report it")
        write("")
        refused = len(ORDERS) - len(orders)
        write(
            f"{len(orders)} orders committed, {len(messages)} messages waiting; {refused} order rolled back with its message."
        )


def _open_shop(path: Path) -> sqlite3.Connection:
    asyncio.run(_init(path))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL)")
    return connection


async def _init(path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as store:
        await store.migrate()


def _take(connection: sqlite3.Connection, order: str, customer: str, amount: int) -> None:
    """Take one order: the row and the message commit together, or neither is there."""
    outbox = Outbox()
    write("")
    write(f"{customer} orders for {amount}")
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders VALUES (?, ?, ?)", (order, customer, amount))
        write(f"  INSERT INTO orders …                  {order}")
        outbox.put(connection, Message("order.placed", key=order, aggregate="order", data={"amount": amount}))
        write("  outbox.put(connection, Message(…))    order.placed")
        _check_credit(amount)
        connection.execute("COMMIT")
        write("  COMMIT                                both are there")
    except CreditRefused as refused:
        connection.execute("ROLLBACK")
        write(f"  ROLLBACK                              neither is there: {refused}")


def _check_credit(amount: int) -> None:
    if amount > CREDIT:
        raise CreditRefused(f"{amount} is more than the credit of {CREDIT}")


async def _messages(path: Path) -> Sequence[Record]:
    async with open_store(f"sqlite:///{path}") as store:
        return await store.find(Query())


def _show(records: Sequence[Record]) -> None:
    write("")
    write("What is in the outbox now:")
    rows = [
        [
            str(record.seq),
            record.message.type,
            record.message.key or "",
            record.status,
            (record.message.body or b"").decode(),
        ]
        for record in records
    ]
    columns = [
        Column("seq", right=True),
        Column("type"),
        Column("key"),
        Column("status"),
        Column("payload", flexible=True),
    ]
    write_table(columns, rows)
