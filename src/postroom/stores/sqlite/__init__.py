"""Postroom on SQLite: one file, one writer at a time, nothing to install.

Write-ahead logging, `synchronous = FULL`, `BEGIN IMMEDIATE`, a patient busy time-out; one thread owns the connection and
a transaction is one hop to it. One host only: the file must be on a local disk.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Self

from postroom.config.tables import TableNames
from postroom.contracts.store import Store, StoreCapabilities
from postroom.errors import ConfigError
from postroom.stores.sqlite.connections import Writer
from postroom.stores.sqlite.doctor import warn_of_wal_reset_defect
from postroom.stores.sqlite.inbox import SQLiteInbox
from postroom.stores.sqlite.lanes import SQLiteLanes
from postroom.stores.sqlite.ops import SQLiteOps
from postroom.stores.sqlite.outbox import SQLiteOutbox
from postroom.stores.sqlite.schema import SQLiteSchema
from postroom.stores.sqlite.statements import INBOX_FILES, Statements
from postroom.stores.sqlite.url import path_of


def open_store(url: str, *, tables: TableNames | None, lanes: int | None, name: str) -> Store:  # noqa: ARG001 - there is no server to be told
    """Return the store in the file that this URL names."""
    return SQLiteStore(path_of(url), tables=tables, lanes=lanes)


class SQLiteStore:
    """See `postroom.contracts.store` for what each part promises. SQLite's clock is this machine's."""

    capabilities = StoreCapabilities(
        name="sqlite",
        durable=True,
        shared=True,
        concurrent_writers=False,
        all_or_none=True,
        time_precision=timedelta(microseconds=1),
        notices_commits=True,
        notices_relays=True,
    )

    def __init__(self, path: str | Path, *, tables: TableNames | None = None, lanes: int | None = None) -> None:
        if str(path) in ("", ":memory:"):
            raise ConfigError("SQLite needs a file, such as sqlite:///shop.db; for a store in memory use memory://.")
        tables = tables or TableNames()
        if tables.schema is not None:
            raise ConfigError(f"SQLite has no schemas: leave out the schema name {tables.schema!r}.")
        writer, statements = Writer(Path(path), tables), Statements(tables)
        self.schema = SQLiteSchema(writer, statements, lanes)
        self.outbox = SQLiteOutbox(writer, statements)
        self.lanes = SQLiteLanes(writer, statements)
        self.inbox = SQLiteInbox(writer, Statements(tables, INBOX_FILES))
        self.ops = SQLiteOps(writer, statements)
        self._writer, self._statements = writer, statements
        warn_of_wal_reset_defect()

    async def close(self) -> None:
        self.inbox.close()
        await self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
