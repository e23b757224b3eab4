"""A transaction of the store's own, as a handle that `Outbox.put` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.mysql import AsyncmyHandle
from postroom.message import Message
from postroom.stores.mysql.connection import Connection


@dataclass(slots=True)
class MySQLTransaction:
    """What is put through it is there once it commits."""

    connection: Connection
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
        await AsyncmyHandle(self.connection).write(messages, tables)
