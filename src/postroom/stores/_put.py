"""One pure statement that writes messages, for any handle of any driver."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias
from zlib import crc32

from postroom.config import TableNames
from postroom.message import Message
from postroom.stores._sql import Style, package_of, render, statements
from postroom.stores._time import microseconds

Dialect: TypeAlias = Literal["sqlite", "postgres"]

CHUNK = 1000
"""How many messages go to a server in one round trip."""

NUL = b"\0"


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL in a driver's own style, and the parameters of each time it is to run."""

    sql: str
    rows: Sequence[tuple[Any, ...]]


def put_statement(dialect: Dialect, style: Style, tables: TableNames, messages: Sequence[Message]) -> Statement:
    """What to run, in the caller's transaction, to write these messages in this order."""
    sql, names = render(statements(package_of(dialect), "sql/put.sql")["put"], style, tables)
    if dialect == "sqlite":
        return Statement(sql, [sqlite_row(message, names) for message in messages])
    chunks = (messages[at : at + CHUNK] for at in range(0, len(messages), CHUNK))
    return Statement(sql, [(json.dumps([postgres_row(message) for message in chunk]),) for chunk in chunks])


def sqlite_row(message: Message, names: Sequence[str]) -> tuple[Any, ...]:
    """A message as the parameters of SQLite's INSERT."""
    payload, body = text_or_bytes(message.body)
    row = {
        **_texts(message),
        "id": str(message.id),
        "hash": line_hash(message.key or str(message.id)),
        "payload": payload,
        "body": body,
        "time": microseconds(message.time),
        "due_at": microseconds(message.not_before),
        "expires_at": microseconds(message.expires_at),
    }
    return tuple(row[name] for name in names)


def postgres_row(message: Message) -> dict[str, str]:
    """A message as one object of the JSON array that PostgreSQL's INSERT reads; what is absent is left out."""
    payload, body = text_or_bytes(message.body)
    row = {
        **_texts(message),
        "id": message.id.hex,  # a third of the time of str(), and the same to PostgreSQL
        "payload": payload,
        "body": None if body is None else base64.b64encode(body).decode(),
        "time": _timestamp(message.time),
        "due_at": _timestamp(message.not_before),
        "expires_at": _timestamp(message.expires_at),
    }
    return {name: value for name, value in row.items() if value is not None}


def _timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _texts(message: Message) -> dict[str, str | None]:
    return {
        "type": message.type,
        "key": message.key,
        "aggregate": message.aggregate,
        "topic": message.topic,
        "content_type": message.content_type,
        "headers": json.dumps(dict(message.headers), ensure_ascii=False) if message.headers else None,
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "traceparent": message.traceparent,
        "idempotency_key": message.idempotency_key,
        "digest": digest(message) if message.idempotency_key else None,
    }


def text_or_bytes(body: bytes | None) -> tuple[str | None, bytes | None]:
    """The body as text where a text column can hold it byte for byte, so that a person can read it; else as bytes."""
    if body is None:
        return None, None
    if NUL in body:
        return None, body
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, body


def digest(message: Message) -> str:
    """A fingerprint of what the idempotency key stands for: the type and the exact bytes (requirement B1)."""
    return hashlib.sha256(message.type.encode() + b"\n" + (message.body or b"")).hexdigest()


def line_hash(line: str) -> int:
    """The number that decides the lane, where the database has no hash of its own."""
    return crc32(line.encode())
