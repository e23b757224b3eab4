"""The shop: orders in a table of its own, each with its message, in one transaction."""

from __future__ import annotations

from contextlib import closing
from threading import Lock
from typing import NamedTuple

from postroom.cli.demo.place import TABLES, Place
from postroom.message import Message
from postroom.outbox.outbox import Outbox


class Order(NamedTuple):
    """Who orders for how much."""

    number: int
    customer: str
    amount: int


CREDIT = 1_000
"""Nobody may owe more; an order above it is rolled back."""
PLACED, TOLD = "order.placed", "order.told"
"""The types: every order is placed, for whoever reads the broker; of some the customer is told, by a webhook."""


class CreditRefused(Exception):
    """The shop's own error: the order is too large."""


class Shop:
    """Takes orders. Nothing here knows of relays, brokers or consumers."""

    def __init__(self, place: Place, run: str) -> None:
        self._place, self._run = place, run
        self._connection = place.connect()
        self._outbox = Outbox(tables=TABLES)
        self._busy = Lock()

    def take(self, order: Order, *, tell: bool = False) -> None:
        """The row and the messages commit together, or none of them is there."""
        with self._busy, self._place.answering(), self._place.transaction(self._connection):
            self._connection.execute(self._place.sql("INSERT INTO {orders} VALUES (?, ?, ?)"), order)
            self._outbox.put(self._connection, self._message(PLACED, order))
            if tell:
                self._outbox.put(self._connection, self._message(TOLD, order))
            if order.amount > CREDIT:
                raise CreditRefused(f"over the credit of {CREDIT:,}")

    def _message(self, kind: str, order: Order) -> Message:
        # The run is in the type: at a broker that others use too, each run handles its own messages and no others.
        data = {"order": order.number, "amount": order.amount}
        return Message(type_of(kind, self._run), key=order.customer, data=data)

    def close(self) -> None:
        """Let go of the database, after what is being written."""
        with self._busy, closing(self._connection):
            pass


def type_of(kind: str, run: str) -> str:
    """What messages of this kind are called in this run."""
    return f"demo.{run}.{kind}"


def order_of(message: Message) -> Order:
    """The order that a message tells of."""
    return Order(message.data["order"], message.key or "", message.data["amount"])


def is_told(message: Message) -> bool:
    """Does it go to the customer's webhook?"""
    return message.type.endswith(TOLD)
