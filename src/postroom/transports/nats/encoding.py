"""A message as NATS carries it, and back: CloudEvents 1.0, binary mode; what others send in structured mode is read as well."""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Mapping
from urllib.parse import quote, unquote

from postroom import codec
from postroom.errors import InvalidMessage
from postroom.message import Message, cloudevent, from_cloudevent

ID = "Nats-Msg-Id"
STREAM = "Nats-Expected-Stream"
STRUCTURED = "application/cloudevents"

# The binding's rule, that of HTTP: space, " and % are encoded, and all that is not printable ASCII.
_PLAIN = re.compile(r"[!#$&-~]*")
_SAFE = "".join(set(string.punctuation) - set('"%'))
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OWNED_PREFIXES = ("ce-", "nats-")
"""What the event itself says; and what the server takes for an order: `Nats-Rollup` empties a stream."""


class Encoding:
    """Makes the headers of messages from one source to one stream."""

    def __init__(self, source: str, stream: str) -> None:
        self._source, self._stream = source, stream

    def headers_of(self, message: Message, subject: str) -> dict[str, str]:
        """Every header; ValueError when the message cannot be written as one.

        A stream remembers an id for all of its subjects together: the same message to two of them has two ids here."""
        headers = {ID: f"{message.id_text}:{subject}", STREAM: self._stream}
        for name, value in cloudevent(message, self._source).items():
            headers[f"ce-{name}"] = value if _PLAIN.fullmatch(value) else quote(value, safe=_SAFE)
        if message.headers or message.traceparent is not None:
            headers |= _own(message)
        return headers


def _own(message: Message) -> dict[str, str]:
    own: dict[str, str] = {}
    for name, value in message.headers.items():
        if name.lower().startswith(_OWNED_PREFIXES) or name.lower() in ("traceparent", "content-type"):
            continue
        value.encode()  # a lone surrogate is a ValueError here, before anything is sent
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise ValueError(f"header {name[:60]!r} cannot be written: a name is letters and digits, a value one line")
        own[name] = value
    if message.traceparent is not None:
        own["traceparent"] = message.traceparent
    return own


def size_of(headers: Mapping[str, str], body: bytes) -> int:
    """What the server counts against its limit: the headers, too."""
    lines = sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
    return len(body) + lines + len(b"NATS/1.0\r\n\r\n")


def message_of(headers: Mapping[str, str] | None, data: bytes) -> tuple[Message, str, str | None]:
    """The message, its source, and why it is none, where it is none."""
    headers = headers or {}
    try:
        message, source = _read(headers, data)
    except (InvalidMessage, ValueError, TypeError, AttributeError) as exc:
        fault = str(exc) if isinstance(exc, InvalidMessage) else f"It is not a readable CloudEvent: {exc}."
        return Message("unknown", body=data, content_type="application/octet-stream"), "", fault
    return message, source, None


def _read(headers: Mapping[str, str], data: bytes) -> tuple[Message, str]:
    lower = {name.lower(): value for name, value in headers.items()}
    if lower.get("content-type", "").lower().startswith(STRUCTURED):
        return _structured(data)
    attributes = {
        name[len("ce-") :]: unquote(value, errors="strict") for name, value in lower.items() if name.startswith("ce-")
    }
    own = {name: value for name, value in headers.items() if not name.lower().startswith(_OWNED_PREFIXES)}
    own.pop("traceparent", None)
    return from_cloudevent(attributes, data or None, own), attributes.get("source", "")


def _structured(data: bytes) -> tuple[Message, str]:
    event = json.loads(data)
    body = base64.b64decode(event.pop("data_base64"), validate=True) if "data_base64" in event else None
    if "data" in event:
        body = codec.encode(event.pop("data"))
    attributes = {name: value for name, value in event.items() if isinstance(value, str)}
    return from_cloudevent(attributes, body), attributes.get("source", "")
