"""Messages out of a database's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from postroom.codec import JSON
from postroom.message import NO_HEADERS, Message

_new, _set = object.__new__, object.__setattr__


def message_of(columns: Sequence[Any]) -> Message:
    """The message in these columns, byte for byte as it was written. Every statement selects them in this order."""
    (
        id_, type_, key, aggregate, topic, payload, body, content_type, headers,
        correlation_id, causation_id, traceparent, idempotency_key, time, expires_at,
    ) = columns  # fmt: skip
    message = _new(Message)
    # Past __init__, which has nothing to check or to convert here: it would be half of what a claim costs.
    _set(
        message,
        "__dict__",
        {
            "type": type_,
            "key": key,
            "body": body if payload is None else payload.encode() if isinstance(payload, str) else payload,
            "content_type": content_type or JSON,
            "id": id_ if isinstance(id_, UUID) else id_of(id_),
            "time": time,
            "aggregate": aggregate,
            "topic": topic,
            "headers": NO_HEADERS if headers is None else headers_of(headers),
            "correlation_id": correlation_id,
            "causation_id": causation_id,
            "traceparent": traceparent,
            "idempotency_key": idempotency_key,
            "not_before": None,
            "expires_at": expires_at,
        },
    )
    return message


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
