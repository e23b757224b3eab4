"""Postroom on PostgreSQL 14 and later, by psycopg 3; also behind a transaction pooler."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from postroom.config.tables import TableNames
from postroom.contracts.store import Store, StoreCapabilities
from postroom.stores.connection_names import OURS
from postroom.stores.postgres.connections import Connections
from postroom.stores.postgres.inbox import PostgresInbox
from postroom.stores.postgres.lanes import PostgresLanes
from postroom.stores.postgres.ops import PostgresOps
from postroom.stores.postgres.outbox import PostgresOutbox
from postroom.stores.postgres.schema import PostgresSchema
from postroom.stores.postgres.statements import INBOX_FILES, Statements


def open_store(url: str, *, tables: TableNames | None, lanes: int | None, name: str) -> Store:
    """Return the store at a URL that psycopg understands."""
    return PostgresStore(url, tables=tables, lanes=lanes, name=name)


class PostgresStore:
    """See `postroom.contracts.store` for what each part promises. Leases are by the server's clock."""

    capabilities = StoreCapabilities(
        name="postgres",
        durable=True,
        shared=True,
        concurrent_writers=True,
        all_or_none=True,
        time_precision=timedelta(microseconds=1),
        notices_commits=False,
        notices_relays=True,
    )

    def __init__(
        self, url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str = OURS
    ) -> None:
        tables = tables or TableNames()
        connections, statements = Connections(url, tables, name), Statements(tables)
        self.schema = PostgresSchema(connections, tables, lanes, connections.shown)
        self.outbox = PostgresOutbox(connections, statements)
        self.lanes = PostgresLanes(connections, statements)
        self.inbox = PostgresInbox(connections, Statements(tables, INBOX_FILES))
        self.ops = PostgresOps(connections, statements)
        self._connections, self._statements = connections, statements

    async def close(self) -> None:
        await self._connections.close()
        self.inbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
