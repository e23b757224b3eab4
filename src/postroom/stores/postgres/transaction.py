"""A transaction of the store's own, as a handle that `Outbox.put` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from psycopg import errors

from postroom.config import TableNames
from postroom.errors import DuplicateMessage, NotInTransaction
from postroom.message import Message
from postroom.stores._put import put_statement
from postroom.stores.postgres.connections import Connection


@dataclass(slots=True)
class PostgresTransaction:
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
        statement = put_statement("postgres", "format", tables, messages)
        try:
            for row in statement.rows:
                await self.connection.execute(statement.sql, row)
        except errors.UniqueViolation as exc:
            said = exc.diag.message_detail or str(exc)
            raise DuplicateMessage(
                f"A message with this id or idempotency key is already in the outbox: {said}"
            ) from exc
