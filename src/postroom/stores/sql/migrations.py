"""Numbered migrations, run by a store or written out as plain SQL; the sentences for a schema that does not fit; dropping.

`postroom init` and `Script` run the same files; the record of what was applied is the same table, so either goes on where the
other ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from postroom.config.tables import Part, TableNames
from postroom.errors import SchemaMismatch
from postroom.stores.sql.files import backquoted, files_of, read, rename
from postroom.stores.sql.insert import Dialect

SINCE: dict[Part, int] = {"": 1, "inbox": 1, "inbox_dead": 1}
"""Tables by whose names somebody may have made one before us, with the migration that makes ours."""
VERSIONS = "versions.sql"
"""The file with the table that says which of them were applied."""
LANES_DEFAULT = 64
COLLATION = "utf8mb4_nopad_bin"
"""As the files have it; MySQL calls it otherwise."""
NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
"""SQLite's: microseconds since 1970."""
TABLES: tuple[Part, ...] = ("claim", "hold", "lane", "relay", "schema", "", "inbox_dead", "inbox")
"""What is dropped, in this order, after the view."""


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered file of SQL."""

    number: int
    name: str
    sql: str


@cache
def steps(package: str) -> Sequence[Step]:
    """The migrations of a store, in order: `0001_postroom.sql`, `0002_…`."""
    folder = files_of(package).joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Step(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text()) for file in files]


def newest(package: str) -> int:
    """The version this Postroom needs."""
    return steps(package)[-1].number


def pending(package: str, version: int) -> Sequence[Step]:
    """What is left to do from this version on; SchemaMismatch when it is from the future."""
    if version > newest(package):
        raise too_new(version, newest(package))
    return [step for step in steps(package) if step.number > version]


def require(package: str, version: int, *, store: str, tables: TableNames) -> None:
    """Raise SchemaMismatch, with the command to type, unless the version is the one this Postroom needs."""
    needed = newest(package)
    if version > needed:
        raise too_new(version, needed)
    if version == 0:
        raise missing(store, tables)
    if version < needed:
        raise too_old(version, needed, store, tables)


# ── the sentences for a schema that does not fit ──────────────────────────────────────────────────────────────────────


def missing(store: str, tables: TableNames) -> SchemaMismatch:
    """The tables are not there."""
    return SchemaMismatch(
        f"The tables of Postroom are not in {store}: run `{init_command(store, tables)}`.", table=tables.name()
    )


def init_command(store: str, tables: TableNames) -> str:
    """What to type to make the tables, by these names.

    >>> init_command("sqlite:///shop.db", TableNames(prefix="post"))
    'postroom init --store sqlite:///shop.db --table-prefix post'
    """
    prefix = "" if tables.prefix == TableNames().prefix else f" --table-prefix {tables.prefix}"
    schema = "" if tables.schema is None else f" --schema {tables.schema}"
    return f"postroom init --store {store}{prefix}{schema}"


def too_old(version: int, needed: int, store: str, tables: TableNames) -> SchemaMismatch:
    """The tables were made by an earlier Postroom."""
    return SchemaMismatch(
        f"The tables in {store} are at version {version}, this Postroom needs {needed}: "
        f"run `{init_command(store, tables)}`.",
        version=version,
        needed=needed,
    )


def too_new(version: int, needed: int) -> SchemaMismatch:
    """The tables were made by a later Postroom."""
    return SchemaMismatch(
        f"The tables are at version {version}, newer than the {needed} this Postroom knows: "
        "upgrade it with `pip install --upgrade postroom`.",
        version=version,
        needed=needed,
    )


def other_lanes(found: int, wanted: int) -> SchemaMismatch:
    """The tables were made with another number of lanes."""
    return SchemaMismatch(
        f"The tables have {found} lanes, not the {wanted} asked for: leave the number out, "
        "or use another table prefix for the new number.",
        found=found,
        wanted=wanted,
    )


def not_ours(store: str, tables: TableNames, part: Part = "") -> SchemaMismatch:
    """There is a table by our name that Postroom did not make."""
    return SchemaMismatch(
        f"There is a table {tables.qualified(part)} in {store} that Postroom did not make: leave it as it is, and choose "
        f"another name with `{init_command(store, TableNames(prefix='postroom', schema=tables.schema))}`.",
        table=tables.name(part),
    )


# ── as plain SQL, a statement at a time: for programs with a connection of their own, or to print it ──────────────────


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


# ── dropping: for what makes tables for itself alone, such as a benchmark ─────────────────────────────────────────────


def drop_statements(tables: TableNames) -> Sequence[str]:
    """What to run, in one transaction; what is not there is passed over. The view goes first: it stands on the tables.

    >>> drop_statements(TableNames(prefix="post"))[0]
    'DROP VIEW IF EXISTS "post_messages"'
    """
    view = f"DROP VIEW IF EXISTS {tables.qualified('messages')}"
    return [view, *(f"DROP TABLE IF EXISTS {tables.qualified(part)}" for part in TABLES)]
