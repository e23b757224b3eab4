"""Numbered migrations, and the sentences for a schema that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from postroom.config.tables import Part, TableNames
from postroom.errors import SchemaMismatch
from postroom.stores.sql.files import files_of

SINCE: dict[Part, int] = {"": 1, "inbox": 2, "inbox_dead": 2}
"""Tables by whose names somebody may have made one before us, with the migration that makes ours."""

VERSIONS = "versions.sql"
"""The file with the table that says which of them were applied."""


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered file of SQL."""

    number: int
    name: str
    sql: str


@cache
def steps(package: str) -> Sequence[Step]:
    """The migrations of a store, in order: `0001_outbox.sql`, `0002_…`."""
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
        f"There is a table {tables.qualified(part)} in {store} that Postroom did not make: leave it to whoever did, and choose "
        f"another name with `{init_command(store, TableNames(prefix='postroom', schema=tables.schema))}`.",
        table=tables.name(part),
    )
