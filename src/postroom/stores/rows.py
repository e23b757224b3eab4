"""Messages out of a database's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from postroom.message import NO_HEADERS, Message, id_of

_new, _set = object.__new__, object.__setattr__


def message_of(
    id_: Any,
    type_: str,
    key: str | None,
    aggregate: str | None,
    topic: str | None,
    body: bytes | None,
    content_type: str,
    headers: str | None,
    correlation_id: str | None,
    causation_id: str | None,
    traceparent: str | None,
    idempotency_key: str | None,
    time: Any,
    expires_at: datetime | None,
) -> Message:
    """The message in these columns, byte for byte as it was written. Every statement selects them in this order; id and
    time are both text, as they travel, or neither is."""
    facts = {
        "type": type_,
        "key": key,
        "body": body,
        "content_type": content_type,
        "id_text": id_,
        "time_text": time,
        "aggregate": aggregate,
        "topic": topic,
        "headers": NO_HEADERS if headers is None else headers_of(headers),
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "traceparent": traceparent,
        "idempotency_key": idempotency_key,
        "not_before": None,
        "expires_at": expires_at,
    }
    if not isinstance(time, str):
        del facts["id_text"], facts["time_text"]
        facts["id"], facts["time"] = id_ if isinstance(id_, UUID) else id_of(id_), time
    # Past __init__, which has nothing to check or to convert here: it would be half of what a claim costs.
    message = _new(Message)
    _set(message, "__dict__", facts)
    return message


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
