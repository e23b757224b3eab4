"""Postroom on MariaDB 10.6 and MySQL 8.0.17 or later, by asyncmy."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from postroom.config.tables import TableNames
from postroom.contracts.store import Store, StoreCapabilities
from postroom.stores.connection_names import OURS
from postroom.stores.mysql.connections import Connections
from postroom.stores.mysql.inbox import MySQLInbox
from postroom.stores.mysql.lanes import MySQLLanes
from postroom.stores.mysql.ops import MySQLOps
from postroom.stores.mysql.outbox import MySQLOutbox
from postroom.stores.mysql.schema import MySQLSchema
from postroom.stores.mysql.statements import INBOX_FILES, Statements


def open_store(url: str, *, tables: TableNames | None, lanes: int | None, name: str) -> Store:
    """Return the store at a URL like `mysql://user:password@host:3306/database`."""
    return MySQLStore(url, tables=tables, lanes=lanes, name=name)


class MySQLStore:
    """See `postroom.contracts.store` for what each part promises. Leases are by the server's clock."""

    capabilities = StoreCapabilities(
        name="mysql",
        durable=True,
        shared=True,
        concurrent_writers=True,
        all_or_none=True,
        time_precision=timedelta(microseconds=1),
        notices_commits=False,
        notices_relays=False,
    )

    def __init__(
        self, url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str = OURS
    ) -> None:
        tables = tables or TableNames()
        connections, statements = Connections(url, tables, name), Statements(tables)
        self.schema = MySQLSchema(connections, tables, lanes, connections.shown)
        self.outbox = MySQLOutbox(connections, statements)
        self.lanes = MySQLLanes(connections, statements)
        self.inbox = MySQLInbox(connections, Statements(tables, INBOX_FILES))
        self.ops = MySQLOps(connections, statements)
        self._connections, self._statements = connections, statements

    async def close(self) -> None:
        await self._connections.close()
        await self.inbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
