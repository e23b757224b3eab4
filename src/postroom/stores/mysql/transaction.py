"""A transaction of the store's own, as a handle that `Outbox.put` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from postroom.errors import NotInTransaction
from postroom.message import Message
from postroom.stores.handles.mysql import AsyncmyHandle
from postroom.stores.mysql.link import Connection
from postroom.tables import TableNames


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
