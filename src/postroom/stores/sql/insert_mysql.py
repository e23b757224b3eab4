"""The INSERT for MariaDB and MySQL: many rows in one statement, in plain ASCII.

A connection of the user's may have any character set, and a driver may or may not say of bytes that they are bytes. So what
is not ASCII travels in hexadecimal digits, and nobody on the way has a chance to take it for something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from postroom.config.tables import TableNames
from postroom.message import Message
from postroom.stores.sql.files import backquoted

CHUNK_ROWS = 1_000
CHUNK_BYTES = 512 * 1024
"""About as much as one statement holds: below the smallest max_allowed_packet in use, but for one row that is larger."""
ABSENT, PLAIN, HEX, TEXT_IN_HEX = "DEFAULT", "%s", "unhex(%s)", "convert(unhex(%s) USING utf8mb4)"


def mysql_statements(
    tables: TableNames, rows: Sequence[Mapping[str, str | bytes]]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What to run, in the caller's transaction, to write these rows in this order; each with its parameters."""
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    columns = ", ".join(f"`{name}`" for name in names)
    head = backquoted(f"INSERT INTO {tables.qualified()} ({columns}) VALUES ")  # noqa: S608 - our own names
    values: list[str] = []
    parameters: list[str] = []
    size = 0
    for row in rows:
        # Each row is a text of its own: which columns it sets, and how each of them travels.
        kinds = [_travels(row.get(name)) for name in names]
        values.append(f"({', '.join(kind for kind, _ in kinds)})")
        added = [value for _, value in kinds if value is not None]
        parameters += added
        size += sum(map(len, added))
        if len(values) == CHUNK_ROWS or size >= CHUNK_BYTES:
            yield head + ", ".join(values), tuple(parameters)
            values, parameters, size = [], [], 0
    if values:
        yield head + ", ".join(values), tuple(parameters)


def _travels(value: str | bytes | None) -> tuple[str, str | None]:
    if value is None:
        return ABSENT, None
    if isinstance(value, bytes):
        return HEX, value.hex()
    return (PLAIN, value) if value.isascii() else (TEXT_IN_HEX, value.encode().hex())


def mysql_row(
    message: Message, texts: Mapping[str, str], body: tuple[str, str | bytes] | None
) -> dict[str, str | bytes]:
    """The columns of a message; what is absent is left out."""
    row: dict[str, str | bytes] = {**texts, "id": str(message.id), "time": _utc(message.time)}
    if body is not None:
        row[body[0]] = body[1]
    if message.not_before is not None:
        row["due_at"] = _utc(message.not_before)
    if message.expires_at is not None:
        row["expires_at"] = _utc(message.expires_at)
    return row


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
