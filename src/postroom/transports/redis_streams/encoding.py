"""A message as an entry of a stream: CloudEvents 1.0, an attribute a field. In every delivery, so it is written for speed.

There is no CloudEvents binding for Redis. This is its binary mode as other brokers have it: `ce_` before the attributes,
`content-type`, and `data` for the body. The message's own headers are fields too, with `header:` before their name.
"""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import InvalidMessage
from postroom.message import Message, from_cloudevent, rfc3339

Words = list[str | bytes]

DATA = "data"
CONTENT_TYPE = "content-type"
ATTRIBUTE = "ce_"
HEADER = "header:"
ALIKE_MAX = 1_000
"""Somebody may put a number into every type."""


class Encoding:
    """Makes the fields of entries from one source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._alike: dict[tuple[str, str], Words] = {}
        """What messages of one type and content type have in common: there are few of them, and many messages."""

    def words_of(self, message: Message) -> Words:
        """Names and values of the fields, in turn. The same attributes as `postroom.message.cloudevent`, which a test
        compares."""
        alike = self._alike.get((message.type, message.content_type)) or self._learn(message.type, message.content_type)
        words = [*alike, "ce_id", message.id_text, "ce_time", message.time_text]
        if (value := message.key) is not None:
            words += ("ce_subject", value, "ce_partitionkey", value)
        if (value := message.aggregate) is not None:
            words += ("ce_aggregate", value)
        if (value := message.correlation_id) is not None:
            words += ("ce_correlationid", value)
        if (value := message.causation_id) is not None:
            words += ("ce_causationid", value)
        if (value := message.idempotency_key) is not None:
            words += ("ce_idempotencykey", value)
        if (value := message.traceparent) is not None:
            words += ("ce_traceparent", value)
        if message.expires_at is not None:
            words += ("ce_expirytime", rfc3339(message.expires_at))
        for name, value in message.headers.items():
            words += (HEADER + name, value)
        if message.body is not None:
            words += (DATA, message.body)
        return words

    def _learn(self, type_: str, content_type: str) -> Words:
        if len(self._alike) >= ALIKE_MAX:
            self._alike.clear()
        alike: Words = [
            "ce_specversion",
            "1.0",
            "ce_source",
            self._source,
            "ce_type",
            type_,
            CONTENT_TYPE,
            content_type,
        ]
        self._alike[type_, content_type] = alike
        return alike


def read(words: Sequence[bytes]) -> tuple[Message, str, str | None]:
    """The message in the fields of an entry, who says it, and why it is none, if it is none."""
    fields = dict(zip(words[::2], words[1::2], strict=True))
    body = fields.pop(DATA.encode(), None)
    try:
        texts = {name.decode(): value.decode() for name, value in fields.items()}
        attributes = {name.removeprefix(ATTRIBUTE): text for name, text in texts.items() if name.startswith(ATTRIBUTE)}
        if CONTENT_TYPE in texts:
            attributes["datacontenttype"] = texts[CONTENT_TYPE]
        headers = {name.removeprefix(HEADER): text for name, text in texts.items() if name.startswith(HEADER)}
        return from_cloudevent(attributes, body, headers), attributes.get("source", ""), None
    except UnicodeDecodeError:
        fault = "A field of it is not UTF-8: only data may hold other bytes."
    except InvalidMessage as exc:
        fault = str(exc)
    if body is None:
        body = b"\n".join(name + b"=" + value for name, value in fields.items())
    return Message("unknown", body=body, content_type="application/octet-stream"), "", fault
