"""`sqlite3.Connection`, and aiosqlite's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.errors import translated
from postroom.handles.handle import whole, whole_async
from postroom.message import Message
from postroom.stores.sql.insert import put_statement

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite


@dataclass(slots=True)
class SqliteHandle:
    """A connection of the standard library."""

    connection: sqlite3.Connection

    def check(self) -> None:
        """Raise NotInTransaction unless BEGIN was run, by the user or by the driver before an earlier write."""
        if not self.connection.in_transaction:
            raise _not_in_transaction("sqlite3", "", self.connection)

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a row each."""
        statement = put_statement("sqlite", "qmark", tables, messages)
        with translated(messages, tables), whole(self.connection.execute, several=len(messages) > 1):
            self.connection.executemany(statement.sql, statement.rows)


@dataclass(slots=True)
class AiosqliteHandle:
    """A connection of aiosqlite: the same in a thread."""

    connection: aiosqlite.Connection

    def check(self) -> None:
        """Raise NotInTransaction unless BEGIN was run."""
        if not self.connection.in_transaction:
            raise _not_in_transaction("aiosqlite", "await ", self.connection)

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a row each."""
        self.check()
        statement = put_statement("sqlite", "qmark", tables, messages)
        with translated(messages, tables):
            async with whole_async(self.connection.execute, several=len(messages) > 1):
                await self.connection.executemany(statement.sql, statement.rows)


def _not_in_transaction(
    driver: str, awaited: str, connection: sqlite3.Connection | aiosqlite.Connection
) -> NotInTransaction:
    """With both ways into a transaction, where the driver has two: people expect `with connection:` to be one."""
    by_hand = f'run {awaited}connection.execute("BEGIN IMMEDIATE") first'
    by_writing = (
        ", or write your data first: the driver begins at your first INSERT or UPDATE, not at `with connection:`"
    )
    return NotInTransaction(
        f"The {driver} connection is not in a transaction, so the message would not commit with your data: "
        f"{by_hand}{'' if connection.isolation_level is None else by_writing}."
    )
