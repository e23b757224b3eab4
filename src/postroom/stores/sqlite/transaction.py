"""A transaction of the store's own, as a handle that `Outbox.put` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.sqlite import SqliteHandle
from postroom.message import Message
from postroom.stores.sqlite.writer import Writer


@dataclass(slots=True)
class SQLiteTransaction:
    """What is put through it is there once it commits."""

    writer: Writer
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
        await self.writer.step(lambda connection: SqliteHandle(connection).write(messages, tables))
