"""A broker in memory, a database, and an inbox between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.conformance.inbox.desks import MariaDBDesk, MongoDesk, PostgresDesk, SQLiteDesk

from postroom.contracts.transport import Identity
from postroom.inbox import Inbox, InboxWorker
from postroom.inbox.worker import Tally
from postroom.message import Message
from postroom.retry import RetryPolicy
from postroom.transports.memory import MemoryBroker, MemoryConsumer

QUICK = RetryPolicy.parse("0.05", max_attempts=3)
IDLE = timedelta(seconds=0.3)
TOPIC = "orders"


@dataclass
class Shop:
    """What a test of a whole reception needs."""

    desk: SQLiteDesk | PostgresDesk | MariaDBDesk | MongoDesk
    broker: MemoryBroker = field(default_factory=MemoryBroker)

    @property
    def is_postgres(self) -> bool:
        return self.desk.opened.capabilities.name == "postgres"

    def send(self, *messages: Message) -> None:
        self.broker.topics[TOPIC] += messages

    def identity(self, message: Message) -> Identity:
        """By what an inbox that receives it here knows it again."""
        return Identity(self.broker.source, message.id)

    def reception(self, inbox: Inbox, *, group: str | None = None, **options: Any) -> InboxWorker:
        consumer = MemoryConsumer(self.broker, TOPIC, group=group or inbox.name)
        return InboxWorker(inbox, self.desk.opened, consumer, **options)

    async def receive(self, inbox: Inbox, **options: Any) -> Tally:
        """Handle all that is there."""
        return await self.reception(inbox, **options).run(until_idle=IDLE)

    @asynccontextmanager
    async def receiving(self, *inboxes: Inbox) -> AsyncIterator[Sequence[InboxWorker]]:
        """The same beside the test."""
        receptions = [self.reception(inbox) for inbox in inboxes]
        tasks = [asyncio.create_task(reception.run()) for reception in receptions]
        try:
            yield receptions
        finally:
            for reception in receptions:
                reception.stop()
            await asyncio.gather(*tasks)

    def insert(self, tx: Any, effect: object) -> None:
        """A sync handler's effect."""
        self.desk.write_blocking(tx, str(effect))

    async def ainsert(self, tx: Any, effect: object) -> None:
        """An async handler's effect."""
        await self.desk.write(tx, str(effect))


def an_inbox(name: str = "billing", **options: Any) -> Inbox:
    return Inbox(name, **{"retry": QUICK, **options})


def paid(number: object, *, key: str | None = "a", **fields: Any) -> Message:
    return Message("order.paid", key=key, data=number, **fields)
