"""One pure statement that writes messages, for any handle of any driver.

Only the columns that a message sets are named: the rest have defaults, and every one left out is time saved in the
caller's transaction. PostgreSQL takes many messages as one JSON parameter, a thousand in a round trip; SQLite runs in
the caller's process, where a row a call costs none; MariaDB and MySQL take many rows in one INSERT, in plain ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

from postroom.codec import JSON
from postroom.config.tables import TableNames
from postroom.message import Message
from postroom.stores.sql.files import Style, backquoted, render
from postroom.stores.sql.times import microseconds

Dialect: TypeAlias = Literal["sqlite", "postgres", "mysql"]

CHUNK = 1000
"""How many messages go to a server in one round trip."""

AS_TEXT = {
    "id": "CAST(CAST(:id AS text) AS uuid)",
    "time": "CAST(CAST(:time AS text) AS timestamptz)",
    "due_at": "CAST(CAST(:due_at AS text) AS timestamptz)",
    "expires_at": "CAST(CAST(:expires_at AS text) AS timestamptz)",
    "body": "decode(CAST(:body AS text), 'base64')",
}
"""PostgreSQL's drivers agree on how to pass a text, and on little else."""

TYPES = {"id": "uuid", "time": "timestamptz", "due_at": "timestamptz", "expires_at": "timestamptz"}
FROM_JSON = {"body": "decode(body, 'base64')", "content_type": f"coalesce(content_type, '{JSON}')"}
"""How a column is read out of the JSON, where it is not just a text."""

DEFAULTS = {"content_type": JSON}
"""For the rows of a batch that leave out what another row sets."""

CHUNK_ROWS = 1_000
CHUNK_BYTES = 512 * 1024
"""About as much as one statement of MariaDB and MySQL holds: below the smallest max_allowed_packet in use, but for one row
that is larger."""
# A connection of the user's may have any character set, and a driver may or may not say of bytes that they are bytes. So what
# is not ASCII travels in hexadecimal digits, and nobody on the way has a chance to take it for something else.
ABSENT, PLAIN, HEX, TEXT_IN_HEX = "DEFAULT", "%s", "unhex(%s)", "convert(unhex(%s) USING utf8mb4)"

NUL = b"\0"


class Statement(NamedTuple):
    """SQL in a driver's own style, and the parameters of each time it is to run."""

    sql: str
    rows: Sequence[tuple[Any, ...]]


def put_statements(
    dialect: Dialect, style: Style, tables: TableNames, messages: Sequence[Message]
) -> Sequence[Statement]:
    """What to run where one statement may not be enough, as on MariaDB and MySQL. Of no messages, nothing runs there."""
    if dialect != "mysql":
        return [put_statement(dialect, style, tables, messages)]
    return [Statement(sql, [row]) for sql, row in put_in_mysql(tables, messages)]


def put_in_mysql(tables: TableNames, messages: Sequence[Message]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What to run on MariaDB and MySQL, each statement with its parameters; every driver of theirs writes them `%s`."""
    return _mysql_statements(tables, [mysql_row(message) for message in messages])


def put_statement(dialect: Dialect, style: Style, tables: TableNames, messages: Sequence[Message]) -> Statement:
    """What to run, in the caller's transaction, to write these messages in this order."""
    if dialect == "sqlite":
        return _insert(dialect, style, tables, [sqlite_row(message) for message in messages])
    if len(messages) == 1:
        row = postgres_row(messages[0])
        # Each name stands once in the statement, so the parameters are in the order of the row.
        return Statement(_insert_sql(dialect, style, tables, tuple(row))[0], [tuple(row.values())])
    rows = [postgres_row(message) for message in messages]
    sql = _insert_many_sql(style, tables, _names(rows))
    return Statement(sql, [(json.dumps(rows[at : at + CHUNK]),) for at in range(0, len(rows), CHUNK)])


def _insert(dialect: Dialect, style: Style, tables: TableNames, rows: Sequence[Mapping[str, Any]]) -> Statement:
    sql, order = _insert_sql(dialect, style, tables, _names(rows))
    return Statement(sql, [tuple([row.get(name, DEFAULTS.get(name)) for name in order]) for row in rows])


def _names(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Every column that one of the rows sets. With no row at all, one that makes a statement."""
    if len(rows) == 1:
        return tuple(rows[0])
    return tuple(dict.fromkeys(name for row in rows for name in row)) or ("type",)


@cache
def _insert_sql(
    dialect: Dialect, style: Style, tables: TableNames, names: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    values = ", ".join(AS_TEXT.get(name, f":{name}") if dialect == "postgres" else f":{name}" for name in names)
    return render(f"INSERT INTO outbox ({', '.join(names)}) VALUES ({values})", style, tables)  # noqa: S608 - our own names


@cache
def _insert_many_sql(style: Style, tables: TableNames, names: tuple[str, ...]) -> str:
    """PostgreSQL's INSERT of a JSON array of objects: one parameter, which every driver can pass.

    A function scan gives its rows in order, and nothing stands between it and the INSERT (a test reads the plan). The
    parameter is a text first: a codec that the user set for json, as is usual with asyncpg, would encode it once more.
    """
    values = ", ".join(FROM_JSON.get(name, name) for name in names)
    columns = ", ".join(f"{name} {TYPES.get(name, 'text')}" for name in names)
    sql = (
        f"INSERT INTO outbox ({', '.join(names)}) SELECT {values} "  # noqa: S608 - our own names
        f"FROM json_to_recordset(CAST(CAST(:messages AS text) AS json)) AS m ({columns})"
    )
    return render(sql, style, tables)[0]


def _mysql_statements(
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


def sqlite_row(message: Message) -> dict[str, Any]:
    """The columns of a message in SQLite; what is absent is left out."""
    row = texts(message)
    row["id"] = str(message.id)
    row["hash"] = line_hash(message.key or row["id"])
    if (body := message.body) is not None:
        name, value = text_or_bytes(body)
        row[name] = value
    row["time"] = microseconds(message.time)
    if message.not_before is not None:
        row["due_at"] = microseconds(message.not_before)
    if message.expires_at is not None:
        row["expires_at"] = microseconds(message.expires_at)
    return row


def postgres_row(message: Message) -> dict[str, str]:
    """The columns of a message in PostgreSQL, every one as text; what is absent is left out."""
    row = texts(message)
    row["id"] = message.id.hex
    if (body := message.body) is not None:
        name, value = text_or_bytes(body)
        row[name] = value if isinstance(value, str) else _base64(value)
    row["time"] = _utc(message.time)
    if message.not_before is not None:
        row["due_at"] = _utc(message.not_before)
    if message.expires_at is not None:
        row["expires_at"] = _utc(message.expires_at)
    return row


def mysql_row(message: Message) -> dict[str, str | bytes]:
    """The columns of a message in MariaDB and MySQL; what is absent is left out."""
    row: dict[str, str | bytes] = {**texts(message), "id": str(message.id), "time": _without_zone(message.time)}
    if (body := message.body) is not None:
        name, value = text_or_bytes(body)
        row[name] = value
    if message.not_before is not None:
        row["due_at"] = _without_zone(message.not_before)
    if message.expires_at is not None:
        row["expires_at"] = _without_zone(message.expires_at)
    return row


def _base64(body: bytes) -> str:
    from base64 import b64encode  # slow to import, as is hashlib below; most services need neither

    return b64encode(body).decode()


def texts(message: Message) -> dict[str, Any]:
    """The fields of a message that are text in every store; what is absent is left out."""
    row: dict[str, Any] = {"type": message.type}
    if message.key is not None:
        row["key"] = message.key
    if message.aggregate is not None:
        row["aggregate"] = message.aggregate
    if message.topic is not None:
        row["topic"] = message.topic
    if message.correlation_id is not None:
        row["correlation_id"] = message.correlation_id
    if message.causation_id is not None:
        row["causation_id"] = message.causation_id
    if message.traceparent is not None:
        row["traceparent"] = message.traceparent
    if message.content_type != JSON:
        row["content_type"] = message.content_type
    if message.headers:
        row["headers"] = json.dumps(dict(message.headers), ensure_ascii=False)
    if message.idempotency_key is not None:
        row["idempotency_key"] = message.idempotency_key
        row["digest"] = digest(message)
    return row


def _utc(moment: datetime) -> str:
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()


def _without_zone(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def text_or_bytes(body: bytes) -> tuple[Literal["payload"], str] | tuple[Literal["body"], bytes]:
    """The column for a body: text where that holds it byte for byte, so that a person can read it; else bytes."""
    if NUL in body:
        return "body", body
    try:
        return "payload", body.decode()
    except UnicodeDecodeError:
        return "body", body


def digest(message: Message) -> str:
    """A fingerprint of what the idempotency key stands for: the type and the exact bytes. The same key
    with another digest is another request that uses a key twice."""
    import hashlib

    return hashlib.sha256(message.type.encode() + b"\n" + (message.body or b"")).hexdigest()


def line_hash(line: str) -> int:
    """The number that decides the lane, where the database has no hash of its own."""
    return crc32(line.encode())
