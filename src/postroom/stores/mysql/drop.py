"""Taking tables away again."""

from __future__ import annotations

from postroom.stores._drop import drop_statements
from postroom.stores._sql import backquoted
from postroom.stores.mysql.connections import Connections
from postroom.stores.mysql.link import Connection
from postroom.tables import TableNames


async def drop(url: str, tables: TableNames) -> None:
    """Drop the tables of these names, if they are there."""
    connections = Connections(url, tables)

    async def each(connection: Connection) -> None:
        for statement in drop_statements(tables):
            await connection.cursor().execute(backquoted(statement))

    try:
        await connections.run(each)
    finally:
        await connections.close()
