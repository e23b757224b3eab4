"""Messages out of documents, and what the choice needs of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from postroom.codec import JSON
from postroom.contracts.outbox import Claimed
from postroom.message import Message
from postroom.stores.mongo.server import Document
from postroom.stores.rows import message_of
from postroom.stores.selection import Seen

LOOK: Document = {"_id": 0, "seq": 1, "key": 1, "lost": 1, "tried_at": 1, "due_at": 1}
"""As much of a message as the choice needs."""
_new = tuple.__new__


def message_in(found: Document) -> Message:
    """The message in this document, byte for byte as it was written."""
    get = found.get
    payload = get("payload")
    expires_at = get("expires_at")
    return message_of(
        get("id") or found["_id"],
        found["type"],
        get("key"),
        get("aggregate"),
        get("topic"),
        get("body") if payload is None else payload.encode(),
        get("content_type") or JSON,
        get("headers"),
        get("correlation_id"),
        get("causation_id"),
        get("traceparent"),
        get("idempotency_key"),
        found["time"],
        None if expires_at is None else expires_at.replace(tzinfo=UTC),
    )


def claimed_in(found: Document, at: datetime) -> Claimed:
    """The message in this document, in flight from this moment on."""
    expires_at = found.get("expires_at")
    expired = expires_at is not None and expires_at <= at
    return _new(Claimed, (found["seq"], found.get("attempts", 0), expired, message_in(found)))


def seen_in(found: Document, at: datetime, held: Collection[str]) -> Seen:
    """What the choice sees of this document."""
    get = found.get
    due_at, key = get("due_at"), get("key")
    return Seen(
        found["seq"],
        key,
        get("lost", 0),
        get("tried_at") is not None,
        due_at is not None and due_at > at,
        key is not None and key in held,
    )
