"""`sqlite3.Connection`, and aiosqlite's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.errors import NotInTransaction
from postroom.message import Message
from postroom.stores._put import put_statement
from postroom.stores.handles._errors import translated
from postroom.tables import TableNames

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
            raise NotInTransaction(
                "The sqlite3 connection is not in a transaction, so the message would not commit with your data: "
                'run connection.execute("BEGIN IMMEDIATE") first.'
            )

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a row each."""
        statement = put_statement("sqlite", "qmark", tables, messages)
        with translated(messages, tables):
            self.connection.executemany(statement.sql, statement.rows)


@dataclass(slots=True)
class AiosqliteHandle:
    """A connection of aiosqlite: the same in a thread."""

    connection: aiosqlite.Connection

    def check(self) -> None:
        """Raise NotInTransaction unless BEGIN was run."""
        if not self.connection.in_transaction:
            raise NotInTransaction(
                "The aiosqlite connection is not in a transaction, so the message would not commit with your data: "
                'run await connection.execute("BEGIN IMMEDIATE") first.'
            )

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a row each."""
        self.check()
        statement = put_statement("sqlite", "qmark", tables, messages)
        with translated(messages, tables):
            await self.connection.executemany(statement.sql, statement.rows)
