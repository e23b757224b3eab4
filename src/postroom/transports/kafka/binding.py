"""A message as a Kafka record: CloudEvents 1.0, binary mode. In every delivery, so it is written for speed."""

from __future__ import annotations

from datetime import datetime

from postroom.message import Message, rfc3339

Headers = list[tuple[str, str | bytes | None]]

_OWNED = frozenset({"content-type", "traceparent"})
_OWNED_PREFIX = "ce_"
_VERSION = ("ce_specversion", "1.0")
_UTC_LENGTH = len("2026-11-15T09:30:00.250000+00:00")


def headers_of(message: Message, source: tuple[str, str]) -> Headers:
    """Every header of the record. *source* is the pair ("ce_source", …), made once.

    The same attributes as `postroom.message.cloudevent`, which a test compares; but for the partition key, which is the
    key of the record."""
    headers: Headers = [
        _VERSION,
        ("ce_id", str(message.id)),
        source,
        ("ce_type", message.type),
        ("ce_time", _rfc3339(message.time)),
        ("content-type", message.content_type),
    ]
    add = headers.append
    if (key := message.key) is not None:
        add(("ce_subject", key))
    if (value := message.aggregate) is not None:
        add(("ce_aggregate", value))
    if (value := message.correlation_id) is not None:
        add(("ce_correlationid", value))
    if (value := message.causation_id) is not None:
        add(("ce_causationid", value))
    if (value := message.idempotency_key) is not None:
        add(("ce_idempotencykey", value))
    if (value := message.traceparent) is not None:
        add(("ce_traceparent", value))
        add(("traceparent", value))
    if message.expires_at is not None:
        add(("ce_expirytime", rfc3339(message.expires_at)))
    if message.headers:
        headers += [(name, value) for name, value in message.headers.items() if not _is_owned(name.lower())]
    return headers


def _rfc3339(moment: datetime) -> str:
    """As `rfc3339` writes it, in a third of the time where the zone is UTC already, as it nearly always is."""
    text = moment.isoformat()
    return text[:-6] + "Z" if len(text) == _UTC_LENGTH and text.endswith("+00:00") else rfc3339(moment)


def _is_owned(name: str) -> bool:
    return name in _OWNED or name.startswith(_OWNED_PREFIX)
