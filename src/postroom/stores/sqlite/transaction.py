"""A transaction of the store's own, as a handle that `Outbox.put` takes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from postroom.config import TableNames
from postroom.errors import DuplicateMessage, NotInTransaction
from postroom.message import Message
from postroom.stores._put import Statement, put_statement
from postroom.stores.sqlite.writer import Writer

UNIQUE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)


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
        statement = put_statement("sqlite", "qmark", tables, messages)
        await self.writer.step(lambda connection: _insert(connection, statement))


def _insert(connection: sqlite3.Connection, statement: Statement) -> None:
    try:
        connection.executemany(statement.sql, statement.rows)
    except sqlite3.IntegrityError as exc:
        if exc.sqlite_errorcode in UNIQUE:
            raise DuplicateMessage(
                f"A message with this id or idempotency key is already in the outbox ({exc})."
            ) from exc
        raise
