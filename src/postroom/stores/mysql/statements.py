"""The statements of this store, by name, on the user's table names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from postroom.config.tables import TableNames
from postroom.stores.mysql.connection import Connection
from postroom.stores.mysql.parameters import Piece
from postroom.stores.sql.files import backquoted, render, statements

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)


class Statements:
    """Runs a statement by its name."""

    def __init__(self, tables: TableNames, files: Sequence[str] = FILES) -> None:
        self.texts = {
            name: backquoted(render(sql, "pyformat", tables)[0])
            for file in files
            for name, sql in statements("postroom.stores.mysql", file).items()
        }

    async def run(self, connection: Connection, name: str, /, **parameters: Any) -> Any:
        """Run one statement with named parameters; the cursor."""
        cursor = connection.cursor()
        # Quoted by the driver one by one, by our own names: a dict from outside never comes here.
        await cursor.execute(self.texts[name], parameters)
        return cursor

    async def rows(self, connection: Connection, name: str, /, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        """Run one statement and fetch what it returns."""
        found: Sequence[tuple[Any, ...]] = await (await self.run(connection, name, **parameters)).fetchall()
        return found

    async def run_many(self, connection: Connection, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert these rows, by a statement that ends in VALUES (…): the driver makes one of them all."""
        await connection.cursor().executemany(self.texts[name], rows)

    def each(self, name: str, rows: Iterable[Mapping[str, int]]) -> Piece:
        """One SELECT after the other, a row of numbers for each: what a lateral join would be, where there is none."""
        return Piece(" UNION ALL ".join(f"({self.texts[name] % row})" for row in rows))
