"""What a message may be: every rule that `put` holds it to, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from postroom.checks import check_fields, within
from postroom.codec import JSON
from postroom.errors import InvalidMessage
from postroom.message import NO_HEADERS

if TYPE_CHECKING:
    from postroom.message import Message

KIB = 1024
BODY_DEFAULT, BODY_MAX = 256 * KIB, 1024 * KIB
HEADERS_DEFAULT, HEADERS_MAX = 64, 256
HEADERS_TOTAL_DEFAULT, HEADERS_TOTAL_MAX = 16 * KIB, 64 * KIB
HEADER_NAME_DEFAULT, HEADER_NAME_MAX = 128, 256
HEADER_VALUE_DEFAULT, HEADER_VALUE_MAX = 2 * KIB, 16 * KIB
# These three are as wide as their columns: they can be lowered, not raised.
TYPE_MAX, KEY_MAX, TOPIC_MAX = 200, 200, 255

NAME_MAX = 255
"""How many characters aggregate, correlation_id, causation_id, idempotency_key and content_type may have."""

SHOWN = 60
"""How much of a wrong text an error repeats."""

# Control characters end a header, a log line or a key early; a lone surrogate has no UTF-8 at all.
_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110's word for a name
_HEADER_NAME = _TOKEN
_CONTENT_TYPE = rf"{_TOKEN}/{_TOKEN}(?: ?;[\x20-\x7e]*)?"
_TRACEPARENT = "00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_OWNED = ("ce-", "ce_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How large a message may be; checked at `put`, before anything is written."""

    body: int = field(default=BODY_DEFAULT, metadata=within(1, BODY_MAX))
    """The encoded body, in bytes. Default 256 KiB; at most 1 MiB."""
    headers: int = field(default=HEADERS_DEFAULT, metadata=within(0, HEADERS_MAX))
    """How many headers. Default 64; at most 256."""
    headers_total: int = field(default=HEADERS_TOTAL_DEFAULT, metadata=within(0, HEADERS_TOTAL_MAX))
    """All names and values of the headers together, in bytes. Default 16 KiB; at most 64 KiB."""
    header_name: int = field(default=HEADER_NAME_DEFAULT, metadata=within(1, HEADER_NAME_MAX))
    """One header's name, in bytes. Default 128; at most 256."""
    header_value: int = field(default=HEADER_VALUE_DEFAULT, metadata=within(1, HEADER_VALUE_MAX))
    """One header's value, in bytes. Default 2 KiB; at most 16 KiB."""
    type: int = field(default=TYPE_MAX, metadata=within(1, TYPE_MAX))
    """The type, in characters. Default 200, and not more."""
    key: int = field(default=KEY_MAX, metadata=within(1, KEY_MAX))
    """The key, in bytes of UTF-8. Default 200, and not more."""
    topic: int = field(default=TOPIC_MAX, metadata=within(1, TOPIC_MAX))
    """The topic, in characters. Default 255, and not more."""

    def __post_init__(self) -> None:
        check_fields(self)


def check(message: Message, limits: Limits) -> None:
    """Raise InvalidMessage, in one sentence, unless the message may be written as it is."""
    if _is_plain(message, limits):
        return
    _check_texts(message, limits)
    _check_body(message, limits)
    _check_times(message)
    if message.headers is not NO_HEADERS:
        check_headers(message, limits)


def _is_plain(message: Message, limits: Limits) -> bool:
    """Is it a message as most are, and surely right? One look, since it stands in the caller's transaction."""
    type_, key, body = message.type, message.key, message.body
    return (
        type(type_) is str
        and type_.isascii()
        and type_.isprintable()
        and " " not in type_
        and 0 < len(type_) <= limits.type
        and (key is None or (type(key) is str and key.isascii() and key.isprintable() and 0 < len(key) <= limits.key))
        and (body is None or (type(body) is bytes and len(body) <= limits.body))
        and message.content_type is JSON
        and message.headers is NO_HEADERS
        and getattr(message.time, "tzinfo", None) is UTC
        and message.topic is None
        and message.aggregate is None
        and message.correlation_id is None
        and message.causation_id is None
        and message.idempotency_key is None
        and message.traceparent is None
        and message.not_before is None
        and message.expires_at is None
    )


def check_headers(message: Message, limits: Limits) -> None:
    """Raise InvalidMessage unless the headers are few, small, named by tokens, and plain text."""
    headers = message.headers
    if not isinstance(headers, Mapping):
        raise _invalid(message, f"has headers of type {type(headers).__name__}", "give a dict of texts")
    if len(headers) > limits.headers:
        raise _invalid(
            message,
            f"has {len(headers):,} headers; the limit is {limits.headers:,}",
            "send fewer",
            limit=limits.headers,
        )
    seen: dict[str, str] = {}
    total = 0
    for name, value in headers.items():
        total += _check_header(message, name, value, limits)
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise _invalid(
                message, f"has headers {other!r} and {name!r}, which receivers take for one", "keep one of them"
            )
    if total > limits.headers_total:
        too_much = f"has {total:,} bytes of headers; the limit is {limits.headers_total:,}"
        raise _invalid(message, too_much, "move what is large into the body", limit=limits.headers_total)


def _check_header(message: Message, name: Any, value: Any, limits: Limits) -> int:
    """The bytes that the header takes."""
    if not isinstance(name, str) or not re.fullmatch(_HEADER_NAME, name):
        raise _invalid(message, f"has a header named {_cut(name)}", "use letters, digits and -, as in HTTP")
    if len(name) > limits.header_name:
        long = f"has a header name of {len(name):,} bytes ({_cut(name)}); the limit is {limits.header_name:,}"
        raise _invalid(message, long, "shorten it", limit=limits.header_name)
    if name.lower().startswith(_OWNED):
        raise _invalid(
            message, f"has a header {name!r}, but names in ce- are CloudEvents attributes", "call it something else"
        )
    if not isinstance(value, str):
        raise _invalid(message, f"has a header {name!r} of type {type(value).__name__}", "give a text")
    if re.search(_UNPRINTABLE, value):
        raise _invalid(
            message, f"has a control character in header {name!r}", "take out line breaks and the like, or encode them"
        )
    size = len(value.encode())
    if size > limits.header_value:
        long = f"has {size:,} bytes in header {name!r}; the limit is {limits.header_value:,}"
        raise _invalid(message, long, "move it into the body", limit=limits.header_value)
    return len(name) + size


def _check_texts(message: Message, limits: Limits) -> None:
    if not message.type:
        raise _invalid(message, "has no type", "say what happened, like 'order.paid'")
    _check_text(message, "type", message.type, limits.type)
    if message.type != message.type.strip():
        raise _invalid(message, "has a type with white space at an end", "strip it")
    _check_text(message, "key", message.key, limits.key, unit="bytes")
    _check_text(message, "topic", message.topic, limits.topic)
    _check_text(message, "aggregate", message.aggregate, NAME_MAX)
    _check_text(message, "correlation_id", message.correlation_id, NAME_MAX)
    _check_text(message, "causation_id", message.causation_id, NAME_MAX)
    _check_text(message, "idempotency_key", message.idempotency_key, NAME_MAX)
    _check_text(message, "content_type", message.content_type, NAME_MAX)
    if not re.fullmatch(_CONTENT_TYPE, message.content_type):
        wrong = f"has the content_type {_cut(message.content_type)}"
        raise _invalid(message, wrong, "give one like 'application/json' or 'text/plain; charset=utf-8'")
    _check_text(message, "traceparent", message.traceparent, NAME_MAX)
    if message.traceparent is not None and not re.fullmatch(_TRACEPARENT, message.traceparent):
        wrong = f"has the traceparent {_cut(message.traceparent)}, which is not W3C's"
        raise _invalid(
            message, wrong, "give one like 00-<32 hex digits>-<16 hex digits>-01, not all zero, or leave it out"
        )


def _check_text(message: Message, name: str, value: Any, limit: int, *, unit: str = "characters") -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise _invalid(message, f"has a {name} of type {type(value).__name__}", "give a text")
    if not value:
        raise _invalid(message, f"has an empty {name}", "leave it out, or give one")
    if re.search(_UNPRINTABLE, value):
        raise _invalid(message, f"has a control character or lone surrogate in its {name}", "take it out")
    size = len(value.encode()) if unit == "bytes" else len(value)
    if size > limit:
        raise _invalid(message, f"has a {name} of {size:,} {unit}; the limit is {limit:,}", "shorten it", limit=limit)


def _check_body(message: Message, limits: Limits) -> None:
    body = message.body
    if body is None:
        return
    if not isinstance(body, bytes):
        raise _invalid(message, f"has a body of type {type(body).__name__}", "give bytes, or a JSON value as data")
    if len(body) > limits.body:
        large = f"has a body of {len(body):,} bytes; the limit is {limits.body:,}"
        raise _invalid(
            message, large, "keep the data elsewhere and send a reference, or raise Limits.body", limit=limits.body
        )


def _check_times(message: Message) -> None:
    _check_time(message, "time", message.time)
    if message.not_before is not None:
        _check_time(message, "not_before", message.not_before)
    if message.expires_at is not None:
        _check_time(message, "expires_at", message.expires_at)
        if message.not_before is not None and message.expires_at <= message.not_before:
            raise _invalid(
                message,
                "has an expires_at that is not after its not_before",
                "it could never be sent; move one of them",
            )


def _check_time(message: Message, name: str, moment: Any) -> None:
    if not isinstance(moment, datetime):
        raise _invalid(
            message, f"has a {name} of type {type(moment).__name__}", "give a datetime, like datetime.now(UTC)"
        )
    if moment.tzinfo is UTC:
        return
    if moment.utcoffset() is None:
        raise _invalid(message, f"has a {name} without a time zone", "give one that has it, like datetime.now(UTC)")
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise _invalid(
            message, f"has a {name} that is in no year from 1 to 9999 UTC", "give an earlier or later one"
        ) from None


def _invalid(message: Message, what: str, remedy: str, **facts: Any) -> InvalidMessage:
    said = f"Message {_cut(message.type)} ({message.id}) {what}: {remedy}."
    return InvalidMessage(said, id=str(message.id), type=message.type, **facts)


def _cut(value: object) -> str:
    text = ascii(value) if isinstance(value, str) and re.search(_UNPRINTABLE, value) else repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
