"""A message as a Kafka record: CloudEvents 1.0, binary mode. In every delivery, so it is written for speed."""

from __future__ import annotations

from postroom.message import Message, rfc3339

Headers = list[tuple[str, str | bytes | None]]

_OWNED = frozenset({"content-type", "traceparent"})
_OWNED_PREFIX = "ce_"
_VERSION = ("ce_specversion", "1.0")
ALIKE_MAX = 1_000
"""Somebody may put a number into every type."""


class Encoding:
    """Makes the headers of records from one source."""

    def __init__(self, source: str) -> None:
        self._source = ("ce_source", source)
        self._alike: dict[tuple[str, str], Headers] = {}
        """What messages of one type and content type have in common: there are few of them, and many messages."""

    def headers_of(self, message: Message) -> Headers:
        """Every header of the record.

        The same attributes as `postroom.message.cloudevent`, which a test compares; but for the partition key, which is
        the key of the record."""
        alike = self._alike.get((message.type, message.content_type)) or self._learn(message.type, message.content_type)
        headers = [*alike, ("ce_id", message.id_text), ("ce_time", message.time_text)]
        add = headers.append
        if (value := message.key) is not None:
            add(("ce_subject", value))
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

    def _learn(self, type_: str, content_type: str) -> Headers:
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        alike: Headers = [_VERSION, self._source, ("ce_type", type_), ("content-type", content_type)]
        self._alike[type_, content_type] = alike
        return alike


def _is_owned(name: str) -> bool:
    return name in _OWNED or name.startswith(_OWNED_PREFIX)
