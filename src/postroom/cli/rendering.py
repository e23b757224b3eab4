"""Messages with their state, as programs and as people read them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from postroom import codec
from postroom.cli.output import Column, width, write_table
from postroom.contracts.ops import Record
from postroom.errors import InvalidMessage
from postroom.message import Message, rfc3339
from postroom.text import without_trace

ROOM = {"WRITTEN": 120, "TRIES": 100}
"""How wide a table must be to have these columns: in a narrow one they would cost the type and the key their places."""


def as_json_object(record: Record, *, payload: bool) -> dict[str, Any]:
    """Everything about a message but what it says; that too if *payload*, for it may be secret, as headers may."""
    message = record.message
    known: dict[str, Any] = {
        "id": str(message.id),
        "seq": record.seq,
        "type": message.type,
        "key": message.key,
        "status": record.status,
        "attempts": record.attempts,
        "last_error_code": record.last_error_code,
        "last_error": record.last_error,
        "parked": record.parked,
        "lane": record.lane,
        "owner": record.owner,
        "topic": message.topic,
        "aggregate": message.aggregate,
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "idempotency_key": message.idempotency_key,
        "content_type": message.content_type,
        "size": len(message.body or b""),
        "time": _time(message.time),
        "created_at": _time(record.created_at),
        "updated_at": _time(record.updated_at),
        "due_at": _time(record.due_at),
        "expires_at": _time(message.expires_at),
        "locked_at": _time(record.locked_at),
        "settled_at": _time(record.settled_at),
    }
    return known | (_contents(message) if payload else {})


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)


def _contents(message: Message) -> dict[str, Any]:
    """`data` when the body is JSON, else `body` when it is text, else `body_base64`."""
    headers: dict[str, Any] = {"headers": dict(message.headers)}
    if message.body is None:
        return headers
    try:
        return headers | {"data": codec.decode(message.body)}
    except InvalidMessage:
        pass
    try:
        return headers | {"body": message.body.decode()}
    except UnicodeDecodeError:
        return headers | {"body_base64": base64.b64encode(message.body).decode()}


def write_records(records: Sequence[Record], *, payload: bool) -> None:
    """Write a table with a line per message; columns in which nothing stands are left out."""
    columns: dict[Column, Sequence[str]] = {
        Column("WRITTEN", style="dim"): [f"{record.created_at:%Y-%m-%d %H:%M:%S}Z" for record in records],
        Column("ID"): [str(record.message.id) for record in records],
        Column("STATUS"): [record.status for record in records],
        Column("TRIES", right=True): [str(record.attempts) for record in records],
        Column("TYPE", flexible=True): [record.message.type for record in records],
        Column("KEY", flexible=True): [record.message.key or "" for record in records],
        Column("WHY", flexible=True): [_why(record) for record in records],
    }
    if payload:
        columns[Column("PAYLOAD", flexible=True, whole=True)] = [_text(record.message.body) for record in records]
    room = width()
    shown = [column for column, cells in columns.items() if any(cells) and room >= ROOM.get(column.title, 0)]
    write_table(shown, zip(*(columns[column] for column in shown), strict=True))


def _why(record: Record) -> str:
    if record.parked and record.settled_at is None:
        return "parked behind a dead message of its key"
    return ": ".join(filter(None, (record.last_error_code, without_trace(record.last_error or ""))))


def _text(body: bytes | None) -> str:
    return "" if body is None else body.decode(errors="backslashreplace")
