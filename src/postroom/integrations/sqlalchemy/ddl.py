"""Our own `.sql` files, read as SQLAlchemy's `Table`s: what a file says of a table is said nowhere else.

It reads no other SQL than ours. CHECKs are left out: SQLAlchemy and Alembic do not compare them, and no table is made from
these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    Column,
    Computed,
    Identity,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
    types,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from postroom.stores.sql.files import read
from postroom.stores.sql.insert import Dialect
from postroom.stores.sql.migrations import VERSIONS, Script

TABLE = r"CREATE TABLE (?:IF NOT EXISTS )?(\S+) \((.*)\)[^)]*$"
INDEX = r"CREATE (UNIQUE )?INDEX (\S+) ON (\S+) (?:USING (\w+) )?\(([^)]*)\)(?: WHERE (.*))?$"
KEY = r"(PRIMARY KEY|UNIQUE KEY|UNIQUE|KEY) ?(\S+)? \(([^)]*)\)$"
COLUMN = r"(\S+)\s+(\w+)(?:\((\d+)\))?(\[\])?\s*(.*)$"
GENERATED = r"GENERATED ALWAYS AS \((.*)\) (STORED|VIRTUAL)"
NAME_MAX = 63
"""PostgreSQL's: beyond it, it shortens the name that it gives a constraint."""

TYPES: Mapping[Dialect, Mapping[str, type[TypeEngine[Any]]]] = {
    "sqlite": {"TEXT": types.TEXT, "INTEGER": types.INTEGER, "BLOB": types.BLOB},
    "postgres": {
        "bigint": types.BIGINT,
        "boolean": types.BOOLEAN,
        "bytea": postgresql.BYTEA,
        "integer": types.INTEGER,
        "text": types.TEXT,
        "uuid": types.UUID,
    },
    "mysql": {
        "bigint": types.BIGINT,
        "int": types.INTEGER,
        "longblob": mysql.LONGBLOB,
        "mediumblob": mysql.MEDIUMBLOB,
        "mediumtext": mysql.MEDIUMTEXT,
        "text": types.TEXT,
    },
}


def read_tables(script: Script, metadata: MetaData) -> Iterator[Table]:
    """Every table of the script's dialect, by the user's names, in this metadata."""
    made: dict[str, Table] = {}
    for statement in script.split(read(script.package, VERSIONS) + read(script.package, "schema.sql")):
        if found := re.match(TABLE, statement, re.DOTALL):
            name = _bare(found[1])
            items = [item for line in _split(found[2]) for item in _items(script.dialect, name, line)]
            made[name] = Table(name, metadata, *items, schema=script.tables.schema)
        elif found := re.match(INDEX, statement, re.DOTALL):
            _add_index(made[_bare(found[3])], *found.groups())
    yield from made.values()


def _items(dialect: Dialect, table: str, line: str) -> Iterator[SchemaItem]:
    """What one line of a table says: a column, perhaps with a constraint, or a key."""
    if line.startswith("CHECK"):
        return
    if found := re.match(KEY, line):
        kind, name, listed = found.groups()
        columns = _names(listed)
        match kind:
            case "PRIMARY KEY":
                yield PrimaryKeyConstraint(*columns)
            case "KEY":
                yield Index(_bare(name), *columns)
            case _:
                yield UniqueConstraint(*columns, name=_bare(name) if name else _unique_name(dialect, table, columns))
        return
    column = _column(dialect, line)
    yield column
    if re.search(r"\bUNIQUE\b", _outside(line)):
        yield UniqueConstraint(column.name, name=_unique_name(dialect, table, [column.name]))


def _column(dialect: Dialect, line: str) -> Column[Any]:
    found = re.match(COLUMN, line, re.DOTALL)
    assert found is not None, line  # noqa: S101 - a file of ours that this cannot read is a mistake of ours
    name, kind, size, many, rest = found.groups()
    says = _outside(rest)
    is_primary, counts = "PRIMARY KEY" in says, bool(re.search("IDENTITY|AUTO_?INCREMENT", says))
    more: list[SchemaItem] = []
    if "IDENTITY" in says:
        more.append(Identity(always="ALWAYS" in says))
    elif generated := re.search(GENERATED, rest, re.DOTALL):
        more.append(Computed(" ".join(generated[1].split()), persisted=generated[2] == "STORED"))
    _, _, default = rest.partition("DEFAULT ") if "DEFAULT " in says and "IDENTITY" not in says else ("", "", "")
    return Column(
        _bare(name),
        ARRAY(_type(dialect, kind, size)) if many else _type(dialect, kind, size),
        *more,
        primary_key=is_primary,
        autoincrement=is_primary and counts,
        nullable="NOT NULL" not in says and not is_primary,
        server_default=text(default.strip()) if default else None,
    )


def _type(dialect: Dialect, kind: str, size: str | None) -> TypeEngine[Any]:
    match kind:
        case "timestamptz":
            return types.TIMESTAMP(timezone=True)
        case "datetime":
            return mysql.DATETIME(fsp=int(size or 0))
        case "varchar":
            return types.VARCHAR(int(size or 0))
        case "boolean" if dialect == "mysql":
            return mysql.TINYINT(1)
    return TYPES[dialect][kind]()


def _add_index(
    table: Table, unique: str | None, name: str, _: str, using: str | None, listed: str, where: str | None
) -> None:
    more: dict[str, Any] = {"postgresql_using": using} if using else {}
    if where:
        more |= {"sqlite_where": text(where), "postgresql_where": text(where)}
    columns = [table.c[column] for column in _names(listed)]
    Index(_bare(name), *columns, unique=unique is not None, **more)


def _unique_name(dialect: Dialect, table: str, columns: Sequence[str]) -> str | None:
    """What PostgreSQL calls it; SQLite gives it no name."""
    name = f"{table}_{'_'.join(columns)}_key"
    return name if dialect == "postgres" and len(name) <= NAME_MAX else None


def _split(body: str) -> Iterator[str]:
    """What stands between the commas that are in no parentheses."""
    depth, part = 0, ""
    for letter in body:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _outside(line: str) -> str:
    """What stands in no parentheses."""
    while (flat := re.sub(r"\([^()]*\)", " ", line)) != line:
        line = flat
    return line


def _bare(name: str) -> str:
    return name.rsplit(".", 1)[-1].strip('"`')


def _names(listed: str) -> list[str]:
    return [_bare(name.strip()) for name in listed.split(",")]
