"""asyncpg's `Connection`, by itself or from a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.errors import translated
from postroom.message import Message
from postroom.stores.sql.insert import put_statement

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[Any] | PoolConnectionProxy[Any]


@dataclass(slots=True)
class AsyncpgHandle:
    """A connection of asyncpg."""

    connection: Connection

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was started."""
        if not self.connection.is_in_transaction():
            raise NotInTransaction(
                "The asyncpg connection is not in a transaction, so the message would not commit with your data: "
                "put inside `async with connection.transaction():`."
            )

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a thousand in a round trip."""
        self.check()
        statement = put_statement("postgres", "numeric_dollar", tables, messages)
        with translated(messages, tables):
            for row in statement.rows:
                await self.connection.execute(statement.sql, *row)
