"""The statements of this store by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncCursor

from postroom.config.tables import TableNames
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.watch import channel
from postroom.stores.sql.files import render, statements

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)


class Statements:
    """Runs a statement by its name."""

    def __init__(self, tables: TableNames, files: Sequence[str] = FILES) -> None:
        self._channel = channel(tables)
        self.texts = {
            name: render(sql, "pyformat", tables)[0]
            for file in files
            for name, sql in statements("postroom.stores.postgres", file).items()
        }

    async def wake(self, connection: Connection) -> None:
        """Tell every relay that watches, once this transaction commits. Never in a producer's transaction."""
        await connection.execute("SELECT pg_notify(%s, '')", [self._channel])

    async def run(self, connection: Connection, name: str, /, **parameters: Any) -> AsyncCursor[tuple[Any, ...]]:
        """Run one statement with named parameters; results come in binary."""
        cursor = connection.cursor(binary=True)
        await cursor.execute(self.texts[name], parameters)
        return cursor

    async def rows(self, connection: Connection, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement and fetch what it returns."""
        return await (await self.run(connection, name, **parameters)).fetchall()

    def many(self, values: Iterable[Any]) -> list[Any]:
        """A list as one parameter: `= ANY(:values)`."""
        return list(values)

    def at(self, moment: datetime | None) -> datetime | None:
        """A moment as a parameter: psycopg takes it as it is."""
        return moment
