"""The tables: made, brought up to date, checked, dropped.

These databases commit after every CREATE, so an `init` may die half-way. What is begun is written down first, with the
number of lanes, and each statement may be run again: the next `init` finishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroom.config.tables import TableNames
from postroom.contracts.schema import Migration
from postroom.errors import StoreUnavailable
from postroom.stores.mysql.connections import Connection
from postroom.stores.sql.files import backquoted, read, rename
from postroom.stores.sql.migrations import (
    SINCE,
    VERSIONS,
    Step,
    drop_statements,
    newest,
    not_ours,
    other_lanes,
    pending,
    require,
)
from postroom.stores.sql.mysql_server import LOG_SETTINGS, Version, lock_name, require_safe_log, version_of
from postroom.stores.sql.parts import Running, in_transaction

PACKAGE = "postroom.stores.mysql"
LANES_DEFAULT = 64
WAIT_SECONDS = 60
COLLATION = "utf8mb4_nopad_bin"
"""As schema.sql has it."""


class MySQLSchema:
    """See `postroom.contracts.schema` for what each method promises."""

    def __init__(self, connections: Running[Connection], tables: TableNames, lanes: int | None, store: str) -> None:
        self.connections = connections
        self._tables, self._lanes, self._store = tables, lanes, store
        self._versions = backquoted(tables.qualified("schema"))

    @in_transaction
    async def migrate(self, connection: Connection) -> Migration:
        require_safe_log(dict(await _rows(connection, LOG_SETTINGS)), self._store)
        # Two at once: one waits here until the other is done. The lock also goes with the connection.
        ((database,),) = await _rows(connection, "SELECT database()")
        lock = lock_name(database, self._tables)
        ((got,),) = await _rows(connection, "SELECT get_lock(%s, %s)", lock, WAIT_SECONDS)
        if not got:
            raise StoreUnavailable(
                f"Another `postroom init` of {self._store} does not end: try again when it has ended."
            )
        try:
            return await self._migrate(connection)
        finally:
            await _rows(connection, "SELECT release_lock(%s)", lock)

    @in_transaction
    async def check(self, connection: Connection) -> None:
        require(PACKAGE, await self._version(connection) or 0, store=self._store, tables=self._tables)

    @in_transaction
    async def drop(self, connection: Connection) -> None:
        for statement in drop_statements(self._tables):
            await connection.cursor().execute(backquoted(statement))

    async def _migrate(self, connection: Connection) -> Migration:
        ((said,),) = await _rows(connection, "SELECT version()")
        server = version_of(said, self._store)
        before = await self._version(connection)
        begun = await self._begun(connection, before)
        for part, since in SINCE.items():
            # It is ours when its step was begun: this `init` may be the one that finishes it.
            if begun < since and await self._has(connection, self._tables.name(part)):
                raise not_ours(self._store, self._tables, part)
        steps = pending(PACKAGE, before or 0)
        lanes = await self._choose_lanes(connection, before)
        if steps and before is None:
            await self._make_room(connection, server)
        for step in steps:
            await self._apply(connection, step, server, lanes)
        return Migration(before=before or 0, after=newest(PACKAGE), applied=[step.name for step in steps])

    async def _apply(self, connection: Connection, step: Step, server: Version, lanes: int) -> None:
        begin = f"INSERT IGNORE INTO {self._versions} (version, name, lanes) VALUES (%s, %s, %s)"  # noqa: S608 - a checked name
        await _rows(connection, begin, step.number, step.name, lanes)
        script = backquoted(rename(step.sql, self._tables, lanes)).replace(COLLATION, server.collation)
        for statement in split(script):
            await connection.cursor().execute(statement)
        done = f"UPDATE {self._versions} SET applied_at = utc_timestamp(6) WHERE version = %s"  # noqa: S608 - the same
        await _rows(connection, done, step.number)

    async def _make_room(self, connection: Connection, server: Version) -> None:
        if self._tables.schema is not None:
            await _rows(connection, f"CREATE DATABASE IF NOT EXISTS `{self._tables.schema}`")
        create = backquoted(rename(read(PACKAGE, VERSIONS), self._tables)).replace(COLLATION, server.collation)
        await _rows(connection, create)

    async def _version(self, connection: Connection) -> int | None:
        """The last step that was finished; 0 when one was begun, None when none ever was."""
        if not await self._has(connection, self._tables.name("schema")):
            return None
        steps = await _rows(connection, f"SELECT version, applied_at IS NOT NULL FROM {self._versions}")  # noqa: S608 - the same
        return max((number for number, is_done in steps if is_done), default=0 if steps else None)

    async def _begun(self, connection: Connection, version: int | None) -> int:
        """The last step that was begun, whether or not it was finished."""
        if version is None:
            return 0
        ((begun,),) = await _rows(connection, f"SELECT max(version) FROM {self._versions}")  # noqa: S608 - the same
        return int(begun)

    async def _has(self, connection: Connection, table: str) -> bool:
        known = (
            "SELECT 1 FROM information_schema.tables WHERE table_schema = coalesce(%s, database()) AND table_name = %s"
        )
        return bool(await _rows(connection, known, self._tables.schema, table))

    async def _choose_lanes(self, connection: Connection, version: int | None) -> int:
        """As many as there are, or are being made; else as asked for."""
        if version is None:
            return self._lanes or LANES_DEFAULT
        ((found,),) = await _rows(connection, f"SELECT lanes FROM {self._versions} ORDER BY version LIMIT 1")  # noqa: S608 - the same
        if self._lanes is not None and found != self._lanes:
            raise other_lanes(found, self._lanes)
        return int(found)


async def _rows(connection: Connection, sql: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
    cursor = connection.cursor()
    await cursor.execute(sql, parameters or None)
    found: Sequence[tuple[Any, ...]] = await cursor.fetchall()
    return found


def split(script: str) -> list[str]:
    """The statements of a script, one by one: each ends with a semicolon at the end of a line.

    >>> split("CREATE TABLE a (b int);\\nCREATE TABLE c (d int);\\n")
    ['CREATE TABLE a (b int)', 'CREATE TABLE c (d int)']
    """
    return [statement.strip() for statement in (script + "\n").split(";\n") if statement.strip()]
