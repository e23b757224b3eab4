"""Taking tables away again."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from postroom.config.tables import TableNames
from postroom.stores.sql.drop import drop_statements
from postroom.stores.sqlite.writer import connect


async def drop(path: Path, tables: TableNames) -> None:
    """Drop the tables of these names, if they are there."""
    await asyncio.to_thread(_drop, path, tables)


def _drop(path: Path, tables: TableNames) -> None:
    if not path.exists():  # connecting would make it
        return
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in drop_statements(tables):
            connection.execute(statement)
        connection.execute("COMMIT")
