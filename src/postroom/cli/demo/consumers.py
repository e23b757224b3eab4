"""The consumers: billing and shipping, each with an inbox and a table of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

from postroom.cli.demo.place import Place
from postroom.cli.demo.shop import PLACED, order_of, type_of
from postroom.contracts.store import Store
from postroom.contracts.transport import Consumer, ConsumerCapabilities, ConsumerOptions, Delivery
from postroom.inbox import Inbox, InboxWorker
from postroom.message import Message
from postroom.transports import open_consumer

WRITES = {
    "billing": "INSERT INTO {bills} (number, customer, amount) VALUES (?, ?, ?)",
    "shipping": "INSERT INTO {parcels} (number, customer, amount) VALUES (?, ?, ?)",
}


def reception_of(name: str, place: Place, store: Store, *, broker: str, run: str) -> InboxWorker:
    """What runs this consumer."""
    kind = type_of(PLACED, run)
    options = ConsumerOptions(group=f"postroom-demo-{name}-{run}")
    consumer = Noting(open_consumer(broker, options), place, name, kind)
    return InboxWorker(inbox_of(name, place, kind), store, consumer)


def inbox_of(name: str, place: Place, kind: str) -> Inbox:
    """An inbox whose handler writes a bill, or a parcel. The row that says so is in the same transaction."""
    inbox = Inbox(name)
    statement = place.sql(WRITES[name])

    @inbox.on(kind)
    def write(message: Message, tx: Any) -> None:
        tx.execute(statement, order_of(message))

    return inbox


class Noting:
    """A consumer that notes what it is handed, also what comes again: else nobody could count what the inbox stopped.

    See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, inner: Consumer, place: Place, name: str, kind: str) -> None:
        self._inner, self._place, self._name, self._kind = inner, place, name, kind

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return self._inner.capabilities

    async def open(self) -> None:
        await self._inner.open()

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        deliveries = await self._inner.receive(limit, wait=wait)
        if ours := [each.message.id_text for each in deliveries if each.message.type == self._kind]:
            await asyncio.to_thread(self._note, ours)
        return deliveries

    def is_lost(self, delivery: Delivery) -> bool:
        return self._inner.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._inner.ack(deliveries)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        await self._inner.nack(delivery, delay=delay)

    async def terminate(self, delivery: Delivery) -> None:
        await self._inner.terminate(delivery)

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, ids: Sequence[str]) -> None:
        statement = self._place.sql("INSERT INTO {deliveries} (consumer, id) VALUES (?, ?)")
        with self._place.answering(), closing(self._place.connect()) as connection, self._place.transaction(connection):
            for id_ in ids:
                connection.execute(statement, (self._name, id_))
