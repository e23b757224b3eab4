"""Taking tables away again."""

from __future__ import annotations

from postroom.config.tables import TableNames
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.sql.drop import drop_statements


async def drop(url: str, tables: TableNames) -> None:
    """Drop the tables of these names, if they are there."""
    connections = Connections(url, tables)

    async def each(connection: Connection) -> None:
        for statement in drop_statements(tables):
            await connection.execute(statement.encode(), prepare=False)

    try:
        await connections.run(each)
    finally:
        await connections.close()
