"""The tables: made, brought up to date, checked."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from functools import cache

from postroom.config.tables import TableNames
from postroom.contracts.schema import Migration
from postroom.stores.sql.files import read, rename
from postroom.stores.sql.migrations import SINCE, VERSIONS, newest, not_ours, other_lanes, pending, require

PACKAGE = "postroom.stores.sqlite"
log = logging.getLogger(PACKAGE)

WAL_RESET_FIXED = (3, 51, 3)
WAL_RESET_FIXED_TOO = ((3, 44, 6), (3, 50, 7))
WAL_RESET_REMEDY = (
    "Run a Python that links SQLite 3.51.3 or later (upgrade the system's libsqlite3, or take a newer build of Python; "
    "`python -c 'import sqlite3; print(sqlite3.sqlite_version)'` shows which it is). Until then let one process do all the "
    "writing, with the relay inside it: see docs/how-to/use-with-fastapi.md."
)
"""Older lines that got the same fix."""


class Schema:
    """Each method runs inside the transaction it is given: two `init` at once, and one waits for the other."""

    def __init__(self, tables: TableNames, lanes: int | None) -> None:
        self._tables = tables
        self._lanes = lanes

    def migrate(self, connection: sqlite3.Connection, now: int, store: str) -> Migration:
        table = self._tables.qualified("schema")
        version = self._version(connection)
        for part, since in SINCE.items():
            if version < since and self._has(connection, self._tables.name(part)):
                raise not_ours(store, self._tables, part)
        connection.execute(rename(read(PACKAGE, VERSIONS), self._tables))
        before = self._version(connection)
        steps = pending(PACKAGE, before)
        self._check_lanes(connection, before)
        for step in steps:
            for statement in split(rename(step.sql, self._tables, self._lanes or 64)):
                connection.execute(statement)
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (step.number, step.name, now))  # noqa: S608 - a checked name
        return Migration(before=before, after=newest(PACKAGE), applied=[step.name for step in steps])

    def check(self, connection: sqlite3.Connection, store: str) -> None:
        require(PACKAGE, self._version(connection), store=store, tables=self._tables)

    def _version(self, connection: sqlite3.Connection) -> int:
        if not self._has(connection, self._tables.name("schema")):
            return 0
        table = self._tables.qualified("schema")
        (version,) = connection.execute(f"SELECT coalesce(max(version), 0) FROM {table}").fetchone()  # noqa: S608 - a checked name
        return int(version)

    def _has(self, connection: sqlite3.Connection, table: str) -> bool:
        known = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,))
        return known.fetchone() is not None

    def _check_lanes(self, connection: sqlite3.Connection, version: int) -> None:
        if version and self._lanes is not None:
            (found,) = connection.execute(f"SELECT count(*) FROM {self._tables.qualified('lane')}").fetchone()  # noqa: S608 - a checked name
            if found != self._lanes:
                raise other_lanes(found, self._lanes)


def split(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit the transaction we are in."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def has_wal_reset_defect(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Does this SQLite have the defect by which two processes that write and checkpoint at once can corrupt the file?

    It is in every version from 3.7.0 on; fixed in 3.51.3, and in the older lines from 3.50.7 and 3.44.6.

    >>> has_wal_reset_defect((3, 40, 1)), has_wal_reset_defect((3, 51, 3)), has_wal_reset_defect((3, 50, 7))
    (True, False, False)
    """
    if version >= WAL_RESET_FIXED:
        return False
    return not any(version[:2] == fixed[:2] and version >= fixed for fixed in WAL_RESET_FIXED_TOO)


@cache
def warn_of_wal_reset_defect() -> None:
    """Say it once per process, where it is so."""
    if has_wal_reset_defect():
        log.warning(
            "This Python links SQLite %s, which has the WAL-reset defect: when several processes write the same file, it "
            "can be corrupted. %s",
            sqlite3.sqlite_version,
            WAL_RESET_REMEDY,
        )
