"""What at a PostgreSQL weakens what Postroom promises, for `postroom doctor`."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.config.tables import TableNames
from postroom.stores.postgres.connections import Connection, Connections

LOSES = {
    "fsync": "a power cut may take what was committed, or the whole database",
    "full_page_writes": "a power cut in the middle of a write may leave a page that is half old and half new",
    "synchronous_commit": "a crash of the server may take what was committed just before",
}
"""What happens where a setting is off."""


async def weaknesses(url: str) -> list[str]:
    """A sentence for each setting that weakens the promise, with the remedy; none when it is fine.

    Raises StoreUnavailable when the database is away."""
    connections = Connections(url, TableNames())

    async def ask(connection: Connection) -> dict[str, str]:
        query = "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)"
        return {row[0]: row[1] for row in await (await connection.execute(query, [list(LOSES)])).fetchall()}

    try:
        return judge(await connections.run(ask))
    finally:
        await connections.close()


def judge(settings: Mapping[str, str]) -> list[str]:
    """What is wrong with these settings.

    >>> judge({"fsync": "on", "synchronous_commit": "off"})
    ['PostgreSQL has synchronous_commit off: a crash of the server may take what was committed just before; set it on.']
    """
    return [
        f"PostgreSQL has {name} off: {what}; set it on." for name, what in LOSES.items() if settings.get(name) == "off"
    ]
