"""The tables: made, brought up to date, checked."""

from __future__ import annotations

from zlib import crc32

from psycopg import sql

from postroom.config.tables import TableNames
from postroom.contracts.schema import Migration
from postroom.errors import StoreError
from postroom.stores.postgres.connections import Connection
from postroom.stores.sql.files import read, rename
from postroom.stores.sql.migrations import (
    SINCE,
    VERSIONS,
    drop_statements,
    newest,
    not_ours,
    other_lanes,
    pending,
    require,
)
from postroom.stores.sql.parts import Running, in_transaction

PACKAGE = "postroom.stores.postgres"


class PostgresSchema:
    """See `postroom.contracts.schema` for what each method promises."""

    def __init__(self, connections: Running[Connection], tables: TableNames, lanes: int | None, store: str) -> None:
        self.connections = connections
        self._tables, self._lanes, self._store = tables, lanes, store
        names = (name for name in (tables.schema, tables.name("schema")) if name is not None)
        self._versions = sql.Identifier(*names)

    @in_transaction
    async def migrate(self, connection: Connection) -> Migration:
        # Two at once: one waits here until the other has committed. The lock goes with the transaction.
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [crc32(self._tables.qualified().encode())])
        _require_utf8(connection)
        before = await self._version(connection)
        for part, since in SINCE.items():
            if before < since and await self._has(connection, self._tables.qualified(part)):
                raise not_ours(self._store, self._tables, part)
        steps = pending(PACKAGE, before)
        await self._check_lanes(connection, before)
        if steps:
            await self._make_room(connection)
        for step in steps:
            script = rename(step.sql, self._tables, self._lanes or 64)
            await connection.execute(script, prepare=False)
            insert = sql.SQL("INSERT INTO {} (version, name) VALUES (%s, %s)").format(self._versions)
            await connection.execute(insert, [step.number, step.name])
        return Migration(before=before, after=newest(PACKAGE), applied=[step.name for step in steps])

    @in_transaction
    async def check(self, connection: Connection) -> None:
        require(PACKAGE, await self._version(connection), store=self._store, tables=self._tables)

    @in_transaction
    async def drop(self, connection: Connection) -> None:
        for statement in drop_statements(self._tables):
            await connection.execute(statement.encode(), prepare=False)

    async def _make_room(self, connection: Connection) -> None:
        if self._tables.schema is not None:
            create_schema = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._tables.schema))
            await connection.execute(create_schema)
        await connection.execute(rename(read(PACKAGE, VERSIONS), self._tables).encode(), prepare=False)

    async def _version(self, connection: Connection) -> int:
        if not await self._has(connection, self._tables.qualified("schema")):
            return 0
        newest_row = await connection.execute(
            sql.SQL("SELECT coalesce(max(version), 0) FROM {}").format(self._versions)
        )
        return int((await newest_row.fetchone() or (0,))[0])

    async def _has(self, connection: Connection, table: str) -> bool:
        known = await connection.execute("SELECT to_regclass(%s)", [table])
        return (await known.fetchone() or (None,))[0] is not None

    async def _check_lanes(self, connection: Connection, version: int) -> None:
        if version and self._lanes is not None:
            names = (name for name in (self._tables.schema, self._tables.name("lane")) if name is not None)
            counted = await connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*names)))
            found = int((await counted.fetchone() or (0,))[0])
            if found != self._lanes:
                raise other_lanes(found, self._lanes)


def _require_utf8(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"The database {connection.info.dbname} is encoded in {encoding}; bodies are kept byte for byte only in UTF8: "
            "create it with ENCODING 'UTF8'."
        )
