"""A transaction of the store's own, as a handle that `Outbox.put` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from postroom.errors import NotInTransaction
from postroom.message import Message
from postroom.stores._documents import documents
from postroom.stores.mongo.books import Shelves
from postroom.stores.mongo.server import Session
from postroom.stores.mongo.strangers import reserve
from postroom.tables import TableNames


@dataclass(slots=True)
class MongoTransaction:
    """What is put through it is there once it commits."""

    shelves: Shelves
    session: Session
    open: bool = True

    def postroom_handle(self) -> Self:
        return self

    def check(self) -> None:
        if not self.open:
            raise NotInTransaction(
                "The store's transaction is over: open a new one with `async with store.transaction()`."
            )

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        self.check()
        if messages:
            shelves = Shelves(self.shelves.server, tables)
            counter = await reserve(shelves, len(messages))
            await shelves.outbox.insert_many(documents(messages, counter), session=self.session)
