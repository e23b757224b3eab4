"""The shop, and its two consumers: billing and shipping, each with an inbox and a table of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from postroom.contracts.transport import Consumer, ConsumerOptions, Delivery
from postroom.demo.database import TABLES, Database
from postroom.inbox import Inbox, InboxWorker
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.transports import open_consumer


class Order(NamedTuple):
    """Who orders for how much."""

    number: int
    customer: str
    amount: int


CREDIT = 1_000
"""Nobody may owe more; an order above it is rolled back."""
PLACED, TOLD = "order.placed", "order.told"
"""The types: every order is placed, for whoever reads the broker; of some the customer is told, by a webhook."""
EFFECTS = {"billing": "bills", "shipping": "parcels"}
"""The consumers, and the table that each writes."""
WRITES = {
    "billing": "INSERT INTO {bills} (number, customer, amount) VALUES (?, ?, ?)",
    "shipping": "INSERT INTO {parcels} (number, customer, amount) VALUES (?, ?, ?)",
}


class CreditRefused(Exception):
    """The shop's own error: the order is too large."""


class Shop:
    """Takes orders. Nothing here knows of relays, brokers or consumers."""

    def __init__(self, database: Database, run: str) -> None:
        self._database, self._run = database, run
        self._outbox = Outbox(tables=TABLES)

    def take(self, order: Order, *, tell: bool = False) -> None:
        """The row and the messages commit together, or none of them is there."""
        with self._database.transaction() as connection:
            connection.execute(self._database.sql("INSERT INTO {orders} VALUES (?, ?, ?)"), order)
            self._outbox.put(connection, self._message(PLACED, order))
            if tell:
                self._outbox.put(connection, self._message(TOLD, order))
            if order.amount > CREDIT:
                raise CreditRefused(f"over the credit of {CREDIT:,}")

    def _message(self, kind: str, order: Order) -> Message:
        # The run is in the type: at a broker that others use too, each run handles its own messages and no others.
        data = {"order": order.number, "amount": order.amount}
        return Message(f"demo.{self._run}.{kind}", key=order.customer, data=data)


def order_of(message: Message) -> Order:
    """The order that a message tells of."""
    return Order(message.data["order"], message.key or "", message.data["amount"])


def is_told(message: Message) -> bool:
    """Does it go to the customer's webhook?"""
    return message.type.endswith(TOLD)


# ── the consumers ──

Deliveries = Counter[tuple[str, str]]
"""How often each consumer was handed each message, by its id."""


def worker_of(name: str, database: Database, *, broker: str, run: str, deliveries: Deliveries) -> InboxWorker:
    """What runs this consumer. Its handler writes a bill, or a parcel; the row that says so is in the same transaction."""
    inbox, statement, kind = Inbox(name), database.sql(WRITES[name]), f"demo.{run}.{PLACED}"

    @inbox.on(kind)
    def write(message: Message, tx: Any) -> None:
        tx.execute(statement, order_of(message))

    received = open_consumer(broker, ConsumerOptions(group=f"postroom-demo-{name}-{run}"))
    consumer: Any = Noting(received, name, kind, deliveries)
    return InboxWorker(inbox, database.store, consumer)


class Noting:
    """A consumer that notes what it is handed, also what comes again: else nobody could count what the inbox stopped."""

    def __init__(self, inner: Consumer, name: str, kind: str, deliveries: Deliveries) -> None:
        self._inner, self._name, self._kind, self._deliveries = inner, name, kind, deliveries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        deliveries = await self._inner.receive(limit, wait=wait)
        ours = (each.message for each in deliveries if each.message.type == self._kind)
        self._deliveries.update((self._name, each.id_text) for each in ours)
        return deliveries
