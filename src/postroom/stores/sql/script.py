"""The migrations as plain SQL, a statement at a time: for whoever runs them on a connection of their own, or prints them.

`postroom init` runs the same files; the record of what was applied is the same table, so either goes on where the other ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from postroom.config.tables import TableNames
from postroom.stores.sql.files import backquoted, read, rename
from postroom.stores.sql.insert import Dialect
from postroom.stores.sql.migrations import VERSIONS, Step, steps

LANES_DEFAULT = 64
COLLATION = "utf8mb4_nopad_bin"
"""As the files have it; MySQL calls it otherwise."""
NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
"""SQLite's: microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Script:
    """The migrations of one dialect, on these names."""

    dialect: Dialect
    tables: TableNames = field(default_factory=TableNames)
    lanes: int = LANES_DEFAULT
    collation: str = COLLATION

    @property
    def package(self) -> str:
        """The store whose files these are."""
        return f"postroom.stores.{self.dialect}"

    def room(self) -> Sequence[str]:
        """What comes before the first step: the schema, where one is named, and the table of versions."""
        schema = self.tables.schema
        kind = "DATABASE" if self.dialect == "mysql" else "SCHEMA"
        make_schema = [self.quoted(f'CREATE {kind} IF NOT EXISTS "{schema}"')] if schema else []
        return [*make_schema, *self.split(read(self.package, VERSIONS))]

    def between(self, after: int, to: int) -> Sequence[Step]:
        """The steps after one version, up to another."""
        return [step for step in steps(self.package) if after < step.number <= to]

    def step(self, step: Step) -> Iterator[str]:
        """One step, with the record that it was applied; where DDL commits, also that it was begun."""
        versions = self.quoted(self.tables.qualified("schema"))
        match self.dialect:
            case "sqlite":
                yield from self.split(step.sql)
                yield f"INSERT INTO {versions} (version, name, applied_at) VALUES ({step.number}, '{step.name}', {NOW})"  # noqa: S608 - a checked name, as below
            case "postgres":
                yield from self.split(step.sql)
                yield f"INSERT INTO {versions} (version, name) VALUES ({step.number}, '{step.name}')"  # noqa: S608
            case "mysql":
                begun = f"({step.number}, '{step.name}', {self.lanes})"
                yield f"INSERT IGNORE INTO {versions} (version, name, lanes) VALUES {begun}"  # noqa: S608
                yield from self.split(step.sql)
                yield f"UPDATE {versions} SET applied_at = utc_timestamp(6) WHERE version = {step.number}"  # noqa: S608

    def split(self, sql: str) -> Sequence[str]:
        """A file's statements, on the user's names: each ends with a semicolon at the end of a line."""
        script = self.quoted(rename(sql, self.tables, self.lanes)).replace(COLLATION, self.collation)
        return [statement.strip() for statement in (script + "\n").split(";\n") if statement.strip()]

    def quoted(self, sql: str) -> str:
        """With the dialect's own quotes around names."""
        return backquoted(sql) if self.dialect == "mysql" else sql
