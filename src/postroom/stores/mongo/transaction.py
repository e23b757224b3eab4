"""A transaction of the store's own, as a handle that `Outbox.put` takes; and what stands in for it where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.mongo import translated
from postroom.message import Message
from postroom.stores.documents import documents
from postroom.stores.mongo.collections import CollectionNames
from postroom.stores.mongo.foreign_rows import reserve
from postroom.stores.mongo.server import Session


@dataclass(slots=True)
class MongoTransaction:
    """What is put through it is there once it commits."""

    shelves: CollectionNames
    session: Session
    open: bool = True

    def postroom_handle(self) -> Self:
        return self

    def check(self) -> None:
        _check(self.open)

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        self.check()
        if messages:
            shelves = CollectionNames(self.shelves.server, tables)
            counter = await reserve(shelves, len(messages))
            await shelves.outbox.insert_many(documents(messages, counter), session=self.session)


@dataclass(slots=True)
class Later:
    """Where there are no transactions: what is put through it is written at the end of the block, or not at all when that
    ends with an error. Only who dies while it is written leaves the first of it."""

    shelves: CollectionNames
    open: bool = True
    waiting: list[tuple[Sequence[Message], TableNames]] = field(default_factory=list)

    def postroom_handle(self) -> Self:
        return self

    def check(self) -> None:
        _check(self.open)

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        self.check()
        self.waiting.append((messages, tables))

    async def write_all(self) -> None:
        """Write what was put, in that order."""
        self.open = False
        for messages, tables in self.waiting:
            with translated(messages):
                await MongoTransaction(self.shelves, None).write(messages, tables)


def _check(is_open: bool) -> None:
    if not is_open:
        raise NotInTransaction("The store's transaction is over: open a new one with `async with store.transaction()`.")
