"""For services that cannot write their data and the message in one transaction: finds what has no message, and puts it.

Such a service writes its data first, then the message. When it dies in between, the data is there and the message is not; the
reconciler finds the record and puts the message that belongs to it. It is the same message however often, and by however many
reconcilers, it is put: its id is made of the record's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import NAMESPACE_OID, UUID, uuid5

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.errors import DuplicateMessage, StoreError
from postroom.message import Message
from postroom.text import one_line

log = logging.getLogger(__name__)

Records: TypeAlias = Callable[[datetime], AsyncIterable[tuple[str, Message]]]
"""Given a moment, the records last written before it: each one's own id, and the message that belongs to it."""

BATCH = 500
"""How many records are looked up at once."""


def message_id(natural_id: str) -> UUID:
    """The id of the message that belongs to the record of this id: always the same.

    >>> message_id("page:7:3") == message_id("page:7:3")
    True
    """
    return uuid5(NAMESPACE_OID, f"postroom:{natural_id}")


class Reconciler:
    """Puts the messages that are missing, once each.

    ```python
    async def paid_orders(before):
        async for order in orders.find({"paid_at": {"$lt": before}}):
            yield order["_id"], Message("order.paid", key=order["_id"], data={"amount": order["amount"]})

    await Reconciler(store, paid_orders).run()
    ```

    The service itself must put the same message: `message.replace(id=message_id(order["_id"]))`.
    """

    def __init__(
        self,
        store: Store,
        records: Records,
        *,
        grace: timedelta = timedelta(minutes=1),
        every: timedelta = timedelta(minutes=1),
    ) -> None:
        self._store, self._records = store, records
        self._grace, self._every = grace, every
        self._stopping = asyncio.Event()

    async def once(self, *, now: datetime | None = None) -> int:
        """Look at every record older than the grace period; how many messages were missing, and were put by this call."""
        put, some = 0, dict[UUID, Message]()
        async for natural_id, message in self._records((now or utcnow()) - self._grace):
            some[message_id(natural_id)] = message
            if len(some) == BATCH:
                put += await self._settle(some)
                some = {}
        return put + await self._settle(some)

    async def run(self) -> None:
        """Do it again and again, until `stop` is called. A database that is away is waited for."""
        while not self._stopping.is_set():
            try:
                if put := await self.once():
                    log.warning("%d records had no message; it was put now.", put)
            except StoreError as exc:
                if not exc.transient:
                    raise
                log.warning("%s", one_line(str(exc)))
            try:
                async with asyncio.timeout(self._every.total_seconds()):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    def stop(self) -> None:
        """End `run` after what it is doing."""
        self._stopping.set()

    async def _settle(self, some: dict[UUID, Message]) -> int:
        if not some:
            return 0
        known = {record.message.id for record in await self._store.ops.find(Query(ids=list(some)))}
        missing = [message.replace(id=own) for own, message in some.items() if own not in known]
        return sum([await self._put([message]) for message in missing])

    async def _put(self, messages: Sequence[Message]) -> int:
        """One by one: of those that another reconciler, or the service itself, puts meanwhile, the others must not fail."""
        try:
            await self._store.outbox.put(messages)
        except DuplicateMessage:
            return 0
        return len(messages)
