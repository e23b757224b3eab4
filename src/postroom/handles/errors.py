"""The errors of a driver that are about us, by code; every other one stays what it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from postroom.config.tables import TableNames
from postroom.errors import DuplicateMessage, SchemaMismatch, StoreError
from postroom.message import Message

COLUMNS = ("type", "id", "time", "key", "payload", "body", "content_type", "headers", "aggregate", "topic", "due_at")
"""Some of those that a message is written to; at least one of them is always missed first."""
MYSQL_DRIVERS = ("pymysql", "MySQLdb", "asyncmy", "aiomysql")


class MySQL:
    """The errors of MariaDB and MySQL that are about us, by number."""

    DUPLICATE, NO_TABLE, NO_COLUMN = 1062, 1146, 1054


class translated:  # noqa: N801 - reads as a sentence: `with translated(messages, tables):`
    """Raises SchemaMismatch or DuplicateMessage where the driver says so inside; lets its other errors pass untouched.

    A class, where a generator would be shorter: it stands in every `put`, and costs a third of that.
    """

    __slots__ = ("_messages", "_tables")

    def __init__(self, messages: Sequence[Message], tables: TableNames) -> None:
        self._messages, self._tables = messages, tables

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, UnicodeEncodeError):
            raise _not_in_this_encoding(exc) from exc
        if isinstance(exc, Exception):
            error, code = _driver_error(exc)
            if ours := _meaning(error, code, self._messages, self._tables):
                raise ours from exc


def _meaning(
    error: BaseException, code: str | int | None, messages: Sequence[Message], tables: TableNames
) -> StoreError | None:
    # SQLSTATEs of PostgreSQL are texts; result codes of SQLite (https://sqlite.org/rescode.html) are numbers, and so are
    # MariaDB's and MySQL's: none is both.
    match code:
        case "42P01":  # undefined_table
            return _missing(error, tables)
        case "42703":  # undefined_column
            return _different_if(error, tables)
        case "23505":  # unique_violation
            return _postgres_duplicate(error, messages, tables)
        case 1:  # SQLITE_ERROR, one code for many things: only the text tells
            return _missing(error, tables) if str(error).startswith("no such table") else _different_if(error, tables)
        case 2067:  # SQLITE_CONSTRAINT_UNIQUE
            return _sqlite_duplicate(error, messages, tables)
        case MySQL.NO_TABLE:
            return _missing(error, tables)
        case MySQL.NO_COLUMN:
            return _different(tables) if _is_about_our_columns(error) else None
        case MySQL.DUPLICATE:
            return _mysql_duplicate(error, messages, tables)
    return None


def _driver_error(exc: BaseException) -> tuple[BaseException, str | int | None]:
    """The driver's own error, below what SQLAlchemy and Django wrap around it, and its code."""
    found: tuple[BaseException, str | int | None] = exc, None
    below: BaseException | None = exc
    while below is not None:
        for name in ("sqlstate", "pgcode", "sqlite_errorcode"):
            if code := getattr(below, name, None):
                found = below, code
        if number := _mysql_number(below):
            found = below, number
        below = getattr(below, "orig", None) or below.__cause__
    return found


def _not_in_this_encoding(error: UnicodeEncodeError) -> StoreError:
    # The driver's own words quote the message.
    return StoreError(
        f"This connection speaks {error.encoding}, which cannot express every character of the message: connect with "
        "client_encoding UTF8 (PostgreSQL) or charset utf8mb4 (MariaDB, MySQL)."
    )


def _missing(error: BaseException, tables: TableNames) -> StoreError | None:
    if not re.search(rf"\b{tables.name()}\b", str(error)):
        return None  # a trigger of the user's looked for another table
    return SchemaMismatch(
        f"There is no table {tables.qualified()} in this database: run postroom init --store URL with the URL of this "
        "database, or give Outbox the tables=TableNames(...) that it was run with.",
        table=tables.name(),
    )


def _different_if(error: BaseException, tables: TableNames) -> StoreError | None:
    ours = re.search(rf"\b{tables.name()}\b.* (?:column|does not exist)", str(error))
    return _different(tables) if ours else None


def _different(tables: TableNames) -> StoreError:
    return SchemaMismatch(
        f"The table {tables.qualified()} has other columns than this Postroom writes: run postroom init --store URL "
        "to bring it up to date, or choose another prefix if the table is not Postroom's.",
        table=tables.name(),
    )


def _sqlite_duplicate(error: BaseException, messages: Sequence[Message], tables: TableNames) -> StoreError | None:
    column = re.search(rf"\b{tables.name()}\.(id|idempotency_key)$", str(error))
    return _duplicate(column[1], None, messages) if column else None


def _postgres_duplicate(error: BaseException, messages: Sequence[Message], tables: TableNames) -> StoreError | None:
    facts: Any = getattr(error, "diag", error)  # asyncpg's stand on the error itself
    constraints = {f"{tables.name()}_id_key": "id", f"{tables.name()}_idempotency": "idempotency_key"}
    column = constraints.get(facts.constraint_name)
    if column is None or facts.table_name != tables.name():
        return None
    # Without the right to read the table there is no detail.
    detail = getattr(facts, "message_detail", None) or getattr(facts, "detail", None) or ""
    value = re.search(r"\)=\((.*)\)", detail, re.DOTALL)
    return _duplicate(column, value[1] if value else None, messages)


def _mysql_number(error: BaseException) -> int | None:
    """The number that MariaDB or MySQL gave it, when it is one of their drivers'."""
    if type(error).__module__.partition(".")[0] not in MYSQL_DRIVERS or not error.args:
        return None
    number = error.args[0]
    return number if isinstance(number, int) else None


def _mysql_duplicate(error: BaseException, messages: Sequence[Message], tables: TableNames) -> StoreError | None:
    found = re.search(rf"(?s)entry '(.*)' for key '(?:\w+\.)?{tables.name()}_(id_key|idempotency)'", str(error))
    if found is None:
        return None
    column = "id" if found[2] == "id_key" else "idempotency_key"
    # A long value is cut in the text: then nobody is named.
    values = [value for message in messages if (value := str(getattr(message, column))) == found[1]]
    return _duplicate(column, values[0] if values else None, messages)


def _is_about_our_columns(error: BaseException) -> bool:
    """Does the table lack a column that we write? A trigger of the user's may look for others."""
    found = re.search(r"column '(?:\w+\.)*(\w+)'", str(error))
    return found is not None and found[1] in COLUMNS


def _duplicate(column: str, value: str | None, messages: Sequence[Message]) -> DuplicateMessage:
    name = column.replace("_", " ")
    if value is None and len(messages) == 1:
        value = str(getattr(messages[0], column))
    which = (
        f"A message with the {name} {value}"
        if value
        else f"A message with the {name} of one of these {len(messages):,}"
    )
    return DuplicateMessage(
        f"{which} is already in the outbox: roll back to where you were before this put, and take it for written "
        f"or give the new one another {name}.",
        **{column: value},
    )
