"""The tables: made, brought up to date, checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.schema import Migration
from postroom.stores.sql.drop import drop_statements
from postroom.stores.sql.files import read, rename
from postroom.stores.sql.migrations import SINCE, VERSIONS, newest, not_ours, other_lanes, pending, require
from postroom.stores.sql.times import microseconds
from postroom.stores.sqlite.connections import Writer
from postroom.stores.sqlite.statements import Part, Statements, in_transaction, reading

PACKAGE = "postroom.stores.sqlite"


class SQLiteSchema(Part):
    """See `postroom.contracts.schema` for what each method promises."""

    def __init__(self, writer: Writer, statements: Statements, lanes: int | None) -> None:
        super().__init__(writer, statements)
        self._lanes = lanes

    async def migrate(self) -> Migration:
        await self.writer.create()
        return await self._migrate()

    @in_transaction
    def _migrate(self, connection: sqlite3.Connection) -> Migration:
        return migrate(connection, self.writer.tables, self._lanes, self.writer.shown)

    @reading
    def check(self, connection: sqlite3.Connection) -> None:
        tables = self.writer.tables
        require(PACKAGE, _version(connection, tables), store=self.writer.shown, tables=tables)

    async def drop(self) -> None:
        if self.writer.path.exists():
            await self._drop()

    @in_transaction
    def _drop(self, connection: sqlite3.Connection) -> None:
        for statement in drop_statements(self.writer.tables):
            connection.execute(statement)


def migrate(connection: sqlite3.Connection, tables: TableNames, lanes: int | None, store: str) -> Migration:
    """Migrate inside the transaction that is open on this connection. Of two at once, one waits for the other.

    Raises SchemaMismatch; *store* is the file as a sentence names it."""
    version = _version(connection, tables)
    for part, since in SINCE.items():
        if version < since and _has(connection, tables.name(part)):
            raise not_ours(store, tables, part)
    connection.execute(rename(read(PACKAGE, VERSIONS), tables))
    before = _version(connection, tables)
    steps = pending(PACKAGE, before)
    _check_lanes(connection, tables, before, lanes)
    record = f"INSERT INTO {tables.qualified('schema')} VALUES (?, ?, ?)"  # noqa: S608 - a checked name
    now = microseconds(utcnow())
    for step in steps:
        for statement in split(rename(step.sql, tables, lanes or 64)):
            connection.execute(statement)
        connection.execute(record, (step.number, step.name, now))
    return Migration(before=before, after=newest(PACKAGE), applied=[step.name for step in steps])


def _version(connection: sqlite3.Connection, tables: TableNames) -> int:
    if not _has(connection, tables.name("schema")):
        return 0
    query = f"SELECT coalesce(max(version), 0) FROM {tables.qualified('schema')}"  # noqa: S608 - a checked name
    (version,) = connection.execute(query).fetchone()
    return int(version)


def _has(connection: sqlite3.Connection, table: str) -> bool:
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,))
    return known.fetchone() is not None


def _check_lanes(connection: sqlite3.Connection, tables: TableNames, version: int, lanes: int | None) -> None:
    if version and lanes is not None:
        (found,) = connection.execute(f"SELECT count(*) FROM {tables.qualified('lane')}").fetchone()  # noqa: S608 - a checked name
        if found != lanes:
            raise other_lanes(found, lanes)


def split(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit the transaction we are in."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
