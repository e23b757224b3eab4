"""What stands in a Kafka topic, read back as messages: the other side of the binding."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from postroom.message import Message

if TYPE_CHECKING:
    from confluent_kafka import Message as Record

OWNED = ("ce_", "content-type", "traceparent")


def headers_in(record: Record) -> dict[str, str]:
    """The headers of a record. No name may be there twice."""
    pairs = list(record.headers() or [])
    headers = {str(name): bytes(value or b"").decode() for name, value in pairs}  # type: ignore[arg-type]  # read, they are bytes
    assert len(headers) == len(pairs), pairs
    return headers


def message_in(record: Record) -> Message:
    """The message that was sent."""
    headers = headers_in(record)
    key = record.key()
    return Message(
        headers["ce_type"],
        id=headers["ce_id"],
        key=None if key is None else key.decode(),
        body=record.value(),
        content_type=headers["content-type"],
        time=datetime.fromisoformat(headers["ce_time"]),
        correlation_id=headers.get("ce_correlationid"),
        headers={name: value for name, value in headers.items() if not name.startswith(OWNED)},
    )
