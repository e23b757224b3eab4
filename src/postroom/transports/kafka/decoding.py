"""A record as a message: the other side of the binding. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import NAMESPACE_OID, uuid5

from confluent_kafka import Message as Record

from postroom.errors import InvalidMessage
from postroom.message import Message, from_cloudevent
from postroom.transports import cloudevents

UNREADABLE = "unreadable"
"""The type that a record has which is no event."""
_PREFIX = "ce_"
_CONTENT_TYPE = "content-type"
_TRACEPARENT = "traceparent"


class Read(NamedTuple):
    """What a record is."""

    message: Message
    source: str
    fault: str | None = None


def read(record: Record) -> Read:
    """The message in a record, in binary mode or structured. What is no event has a fault, and always the same id."""
    key, body = record.key(), record.value()
    try:
        attributes, headers = _sorted(_pairs(record))
        content_type = attributes.get("datacontenttype", "")
        if cloudevents.is_json(content_type) and body is not None:
            attributes, body = cloudevents.read(body)
        if key is not None:
            attributes["partitionkey"] = _key_text(key)
        return Read(from_cloudevent(attributes, body, headers), attributes.get("source", ""))
    except InvalidMessage as exc:
        return _unreadable(record, str(exc))
    except UnicodeDecodeError:
        return _unreadable(record, "A CloudEvents header of it is not UTF-8: send it with Postroom, or as UTF-8.")
    except Exception as exc:  # noqa: BLE001 - one strange record must not stop a partition
        return _unreadable(record, f"It cannot be read: {exc!r}.")


def _pairs(record: Record) -> Iterable[tuple[str, str | bytes | None]]:
    headers = record.headers() or []
    return headers.items() if isinstance(headers, dict) else headers


def _sorted(pairs: Iterable[tuple[str, str | bytes | None]]) -> tuple[dict[str, str], dict[str, str]]:
    """The event's attributes, and the headers that are the message's own."""
    attributes: dict[str, str] = {}
    headers: dict[str, str] = {}
    for name, value in pairs:
        lower = name.lower()
        if lower.startswith(_PREFIX):
            attributes[lower.removeprefix(_PREFIX)] = _as_bytes(value).decode()
        elif lower == _CONTENT_TYPE:
            attributes["datacontenttype"] = _as_bytes(value).decode()
        elif lower == _TRACEPARENT:
            attributes.setdefault("traceparent", _as_bytes(value).decode())
        else:
            headers[name] = _as_bytes(value).decode(errors="backslashreplace")
    return attributes, headers


def _unreadable(record: Record, fault: str) -> Read:
    place = f"{record.topic()}/{record.partition()}/{record.offset()}"
    message = Message(
        UNREADABLE,
        key=None if (key := record.key()) is None else _key_text(key),
        id=uuid5(NAMESPACE_OID, place),
        body=_as_bytes(record.value()),
        content_type="application/octet-stream",
    )
    return Read(message, "", fault)


def _key_text(key: str | bytes) -> str:
    """Somebody else's key may be any bytes. As text it must only stay the same, and different from others."""
    return _as_bytes(key).decode(errors="backslashreplace")


def _as_bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
