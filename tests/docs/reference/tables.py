"""tables.md: every column, with its type on each database."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.reference import columns
from tests.docs.reference.made import first, page, table

import postroom.stores

STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mysql": "MariaDB, MySQL"}
FOLDER = Path(postroom.stores.__file__).parent
TABLE = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
VIEW = re.compile(r"VIEW outbox_messages AS\nSELECT(.*?)\nFROM", re.DOTALL)
TYPE = re.compile(
    r"^(.+?)(?: NOT NULL| GENERATED| DEFAULT| PRIMARY| UNIQUE| CHECK| AUTO_INCREMENT| COLLATE| CHARACTER|$)"
)
SEEN = "Elsewhere it is explained [how they work together](../explain/tables.md), and what MongoDB keeps instead."


def page_of_tables() -> str:
    """A section for each table, and one for the view."""
    schemas = {name: tables_of(name) for name in STORES}
    parts = [part for name, words in columns.TABLES.items() for part in _section(name, words, schemas)]
    rows = [[f"`{name}`", meaning] for name, meaning in columns.MESSAGES.items()]
    view = ["## outbox_messages", VIEW_WORDS, table([["column", "meaning"], *rows])]
    return page("Tables", first(columns).partition(".")[0] + ".", SEEN, *parts, *view)


VIEW_WORDS = "A view: what to query. It has the columns of `outbox` that tell what a message is, and these."


def _section(name: str, words: dict[str, str], schemas: dict[str, dict[str, dict[str, str]]]) -> list[str]:
    types = {column: [_type(schemas[store][name].get(column)) for store in STORES] for column in words}
    rows = [[f"`{column}`", *types[column], meaning] for column, meaning in words.items()]
    return [f"## {name}", table([["column", *STORES.values(), "meaning"], *rows])]


def _type(found: str | None) -> str:
    return f"`{found}`" if found else ""


def tables_of(store: str) -> dict[str, dict[str, str]]:
    """The tables of a store by its `schema.sql`: each column's type."""
    text = re.sub(r"--[^\n]*|/\*.*?\*/", "", (FOLDER / store / "schema.sql").read_text())
    return {name: dict(_columns_in(body)) for name, body in TABLE.findall(text)}


def _columns_in(body: str) -> list[tuple[str, str]]:
    found = []
    for part in re.split(r",(?![^()]*\))", _without_nesting(body)):
        name, _, rest = " ".join(part.split()).partition(" ")
        if name.strip("`").islower():
            kind = TYPE.match(rest)
            found.append((name.strip("`"), kind[1].lower() if kind else rest))
    return found


def _without_nesting(body: str) -> str:
    """The text without what stands in brackets within brackets: defaults and checks, whose commas part no columns."""
    while (inner := re.sub(r"\(([^()]*)\(([^()]*)\)", r"(\1\2", body)) != body:
        body = inner
    return body
