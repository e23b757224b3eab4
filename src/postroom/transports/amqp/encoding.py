"""A message as AMQP 0-9-1 carries it, and back: CloudEvents 1.0 in binary mode, after the binding for AMQP 1.0.

That one says `cloudEvents_` before each attribute, and the content type in its own property; for 0-9-1 there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pamqp.commands import Basic

from postroom.contracts.transport import Delivery
from postroom.errors import InvalidMessage
from postroom.message import Message, from_cloudevent, rfc3339

Properties = Basic.Properties
Headers = dict[str, Any]

PERSISTENT = 2
ALIKE_MAX = 1_000
"""Somebody may put a number into every type."""
_PREFIXES = ("cloudEvents_", "cloudEvents:")
_OWNED = frozenset({"traceparent"})
_OWNED_PREFIXES = ("cloudevents_", "cloudevents:", "x-death", "x-delivery-count", "x-first-death-", "x-last-death-")
"""What says the event, or the broker: a message's own headers have no say in it."""
_BROKERS = ("x-death", "x-delivery-count", "x-acquired-count", "x-first-death-", "x-last-death-")


class Encoding:
    """Makes the headers of messages from one source. In every delivery, so it is written for speed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._alike: dict[str, Headers] = {}
        """What messages of one type have in common: there are few of them, and many messages."""

    def headers_of(self, message: Message) -> Headers:
        """The same attributes as `postroom.message.cloudevent`, which a test compares, and the message's own headers."""
        headers = (self._alike.get(message.type) or self._learn(message.type)).copy()
        headers["cloudEvents_id"] = message.id_text
        headers["cloudEvents_time"] = message.time_text
        if (value := message.key) is not None:
            headers["cloudEvents_subject"] = headers["cloudEvents_partitionkey"] = value
        if (value := message.aggregate) is not None:
            headers["cloudEvents_aggregate"] = value
        if (value := message.correlation_id) is not None:
            headers["cloudEvents_correlationid"] = value
        if (value := message.causation_id) is not None:
            headers["cloudEvents_causationid"] = value
        if (value := message.idempotency_key) is not None:
            headers["cloudEvents_idempotencykey"] = value
        if (value := message.traceparent) is not None:
            headers["cloudEvents_traceparent"] = headers["traceparent"] = value
        if message.expires_at is not None:
            headers["cloudEvents_expirytime"] = rfc3339(message.expires_at)
        for name, value in message.headers.items():
            if not _is_owned(name.lower()):
                headers[name] = value
        return headers

    def _learn(self, type_: str) -> Headers:
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        alike = {"cloudEvents_specversion": "1.0", "cloudEvents_source": self._source, "cloudEvents_type": type_}
        self._alike[type_] = alike
        return alike


def read(properties: Properties, body: bytes, *, topic: str, redelivered: bool) -> Delivery:
    """What was received, without a token. What is no event of ours says so in its `fault`, and has its bytes."""
    headers = properties.headers or {}
    attributes = {
        name[len(_PREFIXES[0]) :]: _text(value) for name, value in headers.items() if name.startswith(_PREFIXES)
    }
    others = {name: value for name, value in headers.items() if isinstance(value, str) and not _is_said(name.lower())}
    # An event without data has no content type either: AMQP itself cannot tell an empty body from none.
    given = None if not body and properties.content_type is None else body
    if properties.content_type:
        attributes["datacontenttype"] = properties.content_type
    before = _count(headers, redelivered=redelivered)
    try:
        message = from_cloudevent(attributes, given, others)
    except (InvalidMessage, ValueError, TypeError) as exc:
        fault = str(exc) or "It cannot be read."
        message = Message("unreadable", body=body, content_type=properties.content_type, headers=others)
        return Delivery(message, attributes.get("source", ""), topic, before, fault)
    return Delivery(message, attributes.get("source", ""), topic, before)


def _count(headers: Mapping[str, Any], *, redelivered: bool) -> int:
    """Quorum queues count; of others one knows only whether it was delivered before."""
    counted = headers.get("x-delivery-count")
    return max(int(redelivered), counted if isinstance(counted, int) else 0)


def _text(value: object) -> str:
    """An attribute as its canonical string: senders may use AMQP's own types."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_owned(name: str) -> bool:
    return name in _OWNED or name.startswith(_OWNED_PREFIXES)


def _is_said(name: str) -> bool:
    return _is_owned(name) or name.startswith(_BROKERS)
