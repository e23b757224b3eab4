"""The statements of this store by name, and how values are given to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from postroom.config.tables import TableNames
from postroom.stores.mysql.connections import Connection, Piece
from postroom.stores.sql.files import backquoted, render, statements

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)
EVERYTHING = 2**63 - 1
"""The LIMIT for none."""


class Statements:
    """Runs a statement by its name, on the user's table names."""

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

    async def wake(self, connection: Connection) -> None:
        """Do nothing: these databases tell nobody of a commit, and relays poll."""

    async def run_many(self, connection: Connection, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert these rows, by a statement that ends in VALUES (…): the driver makes one of them all."""
        await connection.cursor().executemany(self.texts[name], rows)

    def each(self, name: str, rows: Iterable[Mapping[str, int]]) -> Piece:
        """One SELECT after the other, a row of numbers for each: what a lateral join would be, where there is none."""
        return Piece(" UNION ALL ".join(f"({self.texts[name] % row})" for row in rows))

    def many(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """See `many` below."""
        return many(values)

    def at(self, moment: datetime | None) -> str | None:
        """See `text_of` below."""
        return text_of(moment)


# ── how values are given to them ───────────────────────────────────────────────────────────────────────────────────────


def many(values: Iterable[Any]) -> tuple[Any, ...]:
    """A list as one parameter: `IN :values`. An empty one holds a NULL, which is equal to nothing."""
    return tuple(values) or (None,)


def listed(values: Iterable[Any]) -> str:
    """A list as a table to join from: `JSON_TABLE(:listed, …)`."""
    return json.dumps(list(values))


def pairs(lanes: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Lanes and their epochs as one parameter: `(lane, epoch) IN :pairs`. An empty one holds what no lane has."""
    return tuple(lanes.items()) or ((-1, -1),)


def text_of(moment: datetime | None) -> str | None:
    """A moment as the server reads it, in UTC."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
