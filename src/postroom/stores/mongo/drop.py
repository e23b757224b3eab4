"""Taking collections away again."""

from __future__ import annotations

from postroom.config.tables import Part, TableNames
from postroom.stores.mongo.server import Server
from postroom.stores.mongo.url import address

PARTS: tuple[Part, ...] = ("claim", "hold", "lane", "relay", "counter", "dead", "", "inbox_dead", "inbox", "schema")


async def drop(url: str, tables: TableNames) -> None:
    """Drop the collections of these names, if they are there."""
    server = Server(address(url, tables))
    try:
        with server.translated():
            for part in PARTS:
                await server.database[tables.name(part)].drop()
    finally:
        await server.close()
