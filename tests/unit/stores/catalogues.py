"""What a database says its tables are: to be compared, whatever text made them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.unit.stores.homes import Home, columns

OURS_ALONE = "_schema"
"""The table of versions is made by `migrate` itself, not by schema.sql."""


def catalogue(home: Home, prefix: str = "outbox", schema: str = "public") -> dict[str, Any]:
    """Every column, index, check and view of the tables with this prefix, by name; beside `outbox`, the inbox has none."""
    found: dict[str, Any] = {}
    for start in (prefix, "inbox") if prefix == "outbox" else (prefix,):
        match home.dialect:
            case "sqlite":
                found |= _sqlite(home, start)
            case "mysql":
                found |= _mysql(home, start)
            case _:
                found |= _postgres(home, start, schema)
    return found


def renamed(found: Any, old: str, new: str) -> Any:
    """The same catalogue with one word for another in every name and text."""
    return rewritten(found, lambda text: text.replace(old, new))


def with_prefix(found: Any, prefix: str) -> Any:
    """The catalogue of the default names as it would be with this prefix."""

    def change(text: str) -> str:
        return re.sub(r"\b((?:sqlite_autoindex_)?)inbox", rf"\1{prefix}_inbox", text).replace("outbox", prefix)

    return rewritten(found, change)


def rewritten(found: Any, change: Callable[[str], str]) -> Any:
    """The same catalogue with every name and text changed so."""
    match found:
        case dict():
            return {rewritten(name, change): rewritten(value, change) for name, value in found.items()}
        case list() | tuple():
            return [rewritten(value, change) for value in found]
        case str():
            return change(found)
    return found


# ── SQLite ──


def _sqlite(home: Home, prefix: str) -> dict[str, Any]:
    things = home.sql("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
    found: dict[str, Any] = {}
    for kind, name, table, sql in things:
        if not name.startswith(prefix) or name == prefix + OURS_ALONE:
            continue
        found[f"{kind} {name}"] = {
            "of": table,
            "columns": home.sql(f'PRAGMA table_xinfo("{name}")') if kind != "index" else _sqlite_index(home, name),
            # SQLite keeps checks, predicates and views as text alone: compared word by word, quotes left out.
            "words": re.findall(r"[\w.]+|[^\w\s]", re.sub(r"--[^\n]*", "", sql).replace('"', "")),
        }
        if kind == "table":
            found[f"{kind} {name}"] |= {
                "strict": home.sql("SELECT strict, wr, ncol FROM pragma_table_list WHERE name = ?", name),
                "indexes": {
                    row[1]: (*row[2:], _sqlite_index(home, row[1])) for row in home.sql(f'PRAGMA index_list("{name}")')
                },
            }
    return found


def _sqlite_index(home: Home, name: str) -> list[tuple[Any, ...]]:
    return home.sql(f'PRAGMA index_xinfo("{name}")')


# ── PostgreSQL ──

RELATIONS = """
SELECT c.relkind, c.relname, c.relpersistence, c.reloptions::text, pg_get_viewdef(c.oid, true)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname LIKE ? AND c.relname <> ? AND c.relkind IN ('r', 'v', 'S')
ORDER BY c.relname"""
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
    a.attgenerated, a.attidentity, a.attcollation::regcollation::text, a.attstorage
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ?::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum"""
CONSTRAINTS = "SELECT contype, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = ?::regclass ORDER BY 1, 2"
INDEXES = """
SELECT pg_get_indexdef(indexrelid), indisunique, indisprimary, pg_get_expr(indpred, indrelid)
FROM pg_index WHERE indrelid = ?::regclass ORDER BY 1"""
SEQUENCES = """
SELECT seqtypid::regtype::text, seqstart, seqincrement, seqcache, seqcycle
FROM pg_sequence WHERE seqrelid = ?::regclass"""


def _postgres(home: Home, prefix: str, schema: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, name, *more in home.sql(RELATIONS, schema, prefix.replace("_", r"\_") + "%", prefix + OURS_ALONE):
        whole = f'"{schema}"."{name}"'
        found[f"{kind} {name}"] = {
            "more": more,
            "columns": home.sql(COLUMNS, whole),
            "constraints": home.sql(CONSTRAINTS, whole),
            "indexes": home.sql(INDEXES, whole),
            "sequence": home.sql(SEQUENCES, whole) if kind == "S" else None,
        }
    return found


# ── MariaDB ──


def _mysql(home: Home, prefix: str) -> dict[str, Any]:
    """As MariaDB writes it down, with the next number of a counter and the database's name left out."""
    (database,) = columns(home.sql("SELECT database()"))
    found: dict[str, Any] = {}
    for name, kind in home.sql("SHOW FULL TABLES"):
        if name.startswith(prefix) and name != prefix + OURS_ALONE:
            _, text, *_ = home.sql(f'SHOW CREATE TABLE "{name}"')[0]
            text = re.sub(r" AUTO_INCREMENT=\d+| DEFINER=\S+", "", text)
            found[f"{kind} {name}"] = text.replace(f'"{database}".', "").splitlines()
    return found
