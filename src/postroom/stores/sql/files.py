"""Statements out of `.sql` files: plain SQL on the default names, made fit for a driver and for the user's names.

A file holds statements, each under a line `-- name: claim`. Parameters are written `:name`. Names that begin with
`outbox` or `inbox` are ours, and get the user's prefix and schema; `64 /* lanes */` is the number of lanes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from postroom.config.tables import OUTBOX, Part, TableNames

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Style: TypeAlias = Literal["qmark", "format", "pyformat", "numeric_dollar", "named"]
"""How a driver writes a parameter: `?`, `%s`, `%(name)s`, `$1`, `:name`."""

PARTS: dict[str, Part] = {
    "": "",
    "_lane": "lane",
    "_claim": "claim",
    "_hold": "hold",
    "_relay": "relay",
    "_schema": "schema",
    "_messages": "messages",
}
INBOX_PARTS: dict[str, Part] = {"": "inbox", "_dead": "inbox_dead"}
"""What follows the prefix in the name of a table or view. Index names are ours too, but never carry a schema."""

# Compiled when they are needed: a service that only imports Postroom should not wait for them.
_NAME = r"(?m)^-- name: (\w+)$"
_OURS = r"\b(outbox|inbox)(\w*)"
_PARAMETER = r"(?<![:\w]):([a-z_]+)\b"
_LANES = r"\b64 /\* lanes \*/"


@cache
def statements(package: str, file: str) -> dict[str, str]:
    """The statements of one file of a package, by name, as written."""
    _, *parts = re.split(_NAME, read(package, file))
    return {name: text.strip().rstrip(";") for name, text in zip(parts[::2], parts[1::2], strict=True)}


@cache
def read(package: str, file: str) -> str:
    """A file of a package, whole."""
    return files_of(package).joinpath(file).read_text()


def files_of(package: str) -> Traversable:
    """The folder of a package of stores, which is not imported for it: its driver may not be there."""
    from importlib import resources  # slow to import, and not needed until the first statement

    parent, _, name = package.rpartition(".")
    return resources.files(parent).joinpath(name)


@cache
def render(sql: str, style: Style, tables: TableNames, lanes: int = 64) -> tuple[str, tuple[str, ...]]:
    """The statement in a driver's own style, and the names of its parameters in the order they stand.

    >>> render("SELECT seq FROM outbox WHERE id = :id AND key = :key", "numeric_dollar", TableNames(prefix="post"))
    ('SELECT seq FROM "post" WHERE id = $1 AND key = $2', ('id', 'key'))
    """
    named = rename(sql, tables, lanes)
    if style in ("format", "pyformat"):
        named = named.replace("%", "%%")
    order: list[str] = []

    def write(found: re.Match[str]) -> str:
        name = found[1]
        match style:
            case "numeric_dollar":
                if name not in order:
                    order.append(name)
                return f"${order.index(name) + 1}"
            case "qmark" | "format":
                order.append(name)
                return "?" if style == "qmark" else "%s"
            case "pyformat":
                return f"%({name})s"
            case "named":
                return f":{name}"

    return re.sub(_PARAMETER, write, named), tuple(order)


def rename(sql: str, tables: TableNames, lanes: int = 64) -> str:
    """The same SQL on the user's table names, with their number of lanes."""

    def ours(found: re.Match[str]) -> str:
        box, suffix = found.groups()
        parts = PARTS if box == OUTBOX else INBOX_PARTS
        if suffix in parts:
            return tables.qualified(parts[suffix])
        return f'"{tables.name(parts[""])}{suffix}"'

    return re.sub(_LANES, str(lanes), re.sub(_OURS, ours, _without_comments(sql)))


def backquoted(sql: str) -> str:
    """The same for MariaDB and MySQL, which take a double quote for the start of a text.

    >>> backquoted(rename("SELECT seq FROM outbox", TableNames()))
    'SELECT seq FROM `outbox`'
    """
    return sql.replace('"', "`")


def _without_comments(sql: str) -> str:
    # Comments are for the reader of the file; a colon or a table's name in one must not be taken for ours.
    return "\n".join(line.split("-- ", 1)[0].rstrip() for line in sql.splitlines() if not line.startswith("-- "))
