"""Messages out of a database's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from postroom.message import NO_HEADERS, Message


class MessageRow(NamedTuple):
    """The columns of a message, in the order every statement selects them."""

    id: UUID | str
    type: str
    key: str | None
    aggregate: str | None
    topic: str | None
    payload: str | bytes | None
    body: bytes | None
    content_type: str
    headers: str | None
    correlation_id: str | None
    causation_id: str | None
    traceparent: str | None
    idempotency_key: str | None
    time: datetime
    expires_at: datetime | None


def message_of(columns: Sequence[Any]) -> Message:
    """The message in these columns, byte for byte as it was written."""
    row = MessageRow(*columns)
    payload = row.payload.encode() if isinstance(row.payload, str) else row.payload
    return Message(
        row.type,
        key=row.key,
        body=row.body if payload is None else payload,
        content_type=row.content_type,
        id=row.id if isinstance(row.id, UUID) else id_of(row.id),
        time=row.time,
        aggregate=row.aggregate,
        topic=row.topic,
        headers=headers_of(row.headers),
        correlation_id=row.correlation_id,
        causation_id=row.causation_id,
        traceparent=row.traceparent,
        idempotency_key=row.idempotency_key,
        expires_at=row.expires_at,
    )


def id_of(text: str) -> UUID:
    """The id in this text. What a stranger wrote there that is none stands for one that is always the same."""
    try:
        return UUID(text)
    except ValueError:
        return uuid5(NAMESPACE_OID, text)


def headers_of(text: str | None) -> Mapping[str, str]:
    """The headers in this JSON object. What a stranger wrote there that is none is shown as one header, not as an error:
    one unreadable row must not hide the others."""
    if text is None:
        return NO_HEADERS
    try:
        found = json.loads(text)
    except ValueError:
        return {"unreadable-headers": text}
    if not isinstance(found, dict):
        return {"unreadable-headers": text}
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
