"""The shop: orders in a table of its own, each with a message, in one transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from postroom.message import Message
from postroom.outbox import Outbox


class Order(NamedTuple):
    """Who orders for how much."""

    customer: str
    amount: int


ORDERS = [
    Order("ada", 120),
    Order("grace", 80),
    Order("edsger", 9_999),
    Order("barbara", 45),
    Order("grace", 30),
    Order("ada", 60),
    Order("barbara", 15),
]
CREDIT = 1_000
"""Nobody may owe more; an order above it is rolled back."""


class CreditRefused(Exception):
    """The shop's own error: the order is too large."""


class Shop:
    """Takes orders. Nothing here knows of relays or warehouses."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("CREATE TABLE orders (customer TEXT NOT NULL, amount INTEGER NOT NULL)")
        self._outbox = Outbox()

    def take(self, order: Order) -> None:
        """The row and the message commit together, or neither is there."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("INSERT INTO orders VALUES (?, ?)", order)
            self._outbox.put(connection, Message("order.placed", key=order.customer, data={"amount": order.amount}))
            if order.amount > CREDIT:
                raise CreditRefused(f"over the credit of {CREDIT:,}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def orders(self) -> list[Order]:
        """What is in the table, in the order written."""
        rows = self._connection.execute("SELECT customer, amount FROM orders ORDER BY rowid")
        return [Order(*row) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
