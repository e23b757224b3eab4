"""A message as a Kafka record: CloudEvents 1.0, binary mode. In every delivery, so it is written for speed."""

from __future__ import annotations

from datetime import UTC

from postroom.message import Message, rfc3339

Headers = list[tuple[str, str | bytes | None]]

_OWNED = frozenset({"content-type", "traceparent"})
_OWNED_PREFIX = "ce_"
_VERSION = ("ce_specversion", "1.0")
_OPTIONAL = (
    ("ce_aggregate", "aggregate"),
    ("ce_correlationid", "correlation_id"),
    ("ce_causationid", "causation_id"),
    ("ce_idempotencykey", "idempotency_key"),
)


def headers_of(message: Message, source: tuple[str, str]) -> Headers:
    """Every header of the record. *source* is the pair ("ce_source", …), made once.

    The same attributes as `postroom.message.cloudevent`, which a test compares."""
    facts = message.__dict__
    headers: Headers = [
        _VERSION,
        ("ce_id", str(message.id)),
        source,
        ("ce_type", message.type),
        ("ce_time", _time(message)),
        ("content-type", message.content_type),
    ]
    if (key := message.key) is not None:
        headers += (("ce_subject", key), ("ce_partitionkey", key))
    headers += [(name, value) for name, field in _OPTIONAL if (value := facts[field]) is not None]
    if (trace := message.traceparent) is not None:
        headers += (("ce_traceparent", trace), ("traceparent", trace))
    if message.expires_at is not None:
        headers.append(("ce_expirytime", rfc3339(message.expires_at)))
    if message.headers:
        headers += [(name, value) for name, value in message.headers.items() if not _is_owned(name.lower())]
    return headers


def _time(message: Message) -> str:
    moment = message.time
    # As rfc3339 does it, in half the time where the zone is UTC already.
    return moment.isoformat(timespec="microseconds")[:-6] + "Z" if moment.tzinfo is UTC else rfc3339(moment)


def _is_owned(name: str) -> bool:
    return name in _OWNED or name.startswith(_OWNED_PREFIX)
