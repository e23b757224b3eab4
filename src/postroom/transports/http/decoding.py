"""A request as a message: CloudEvents 1.0, binary mode or structured. The other side of the binding. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from postroom.errors import InvalidMessage
from postroom.message import Message, from_cloudevent
from postroom.transports import cloudevents
from postroom.transports.http.encoding import is_owned

_PREFIX = "ce-"
_ABOUT_THE_REQUEST = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "date", "user-agent", "origin", "referer"),
        *("authorization", "cookie", "via", "forwarded", "x-real-ip", "x-request-id"),
    }
)
"""Of the request and those who passed it on, not of the message; and secrets, which nobody wants to find in a store."""
_FORWARDED = "x-forwarded-"


class Read(NamedTuple):
    """What a request is."""

    message: Message
    source: str


class Unsupported(InvalidMessage):
    """It is an event, in a format that is not read here."""


def headers_in(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers, names in lower case. InvalidMessage where the event says one thing twice."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), _text(raw_value)
        if name in headers and name.startswith((_PREFIX, "webhook-", "content-type")):
            raise InvalidMessage(f"Its header {name} is there twice: send it once.")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def read(headers: Mapping[str, str], body: bytes) -> Read:
    """The message in a request; InvalidMessage when it is no event."""
    content_type = headers.get("content-type", "")
    own = {name: value for name, value in headers.items() if not _is_of_the_request(name)}
    if cloudevents.is_structured(content_type):
        if not cloudevents.is_json(content_type):
            raise Unsupported(f"It is an event in a format that is not read here: send {cloudevents.MEDIA_TYPE}.")
        attributes, data = cloudevents.read(body)
    else:
        attributes = {
            name.removeprefix(_PREFIX): decode(value) for name, value in headers.items() if _is_attribute(name)
        }
        attributes["datacontenttype"] = content_type
        # The binding has no way to tell no data from data of no bytes.
        data = body or None
    return Read(from_cloudevent(attributes, data, own), attributes.get("source", ""))


def decode(value: str) -> str:
    """An attribute's value out of a header; InvalidMessage when it is not UTF-8.

    >>> decode('kl%C3%AD%C4%8D%207%25'), decode('"a \\\\"b\\\\""')
    ('klíč 7%', 'a "b"')
    """
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidMessage("A CloudEvents header of it is not UTF-8: percent-encode it as UTF-8.") from None


def _is_attribute(name: str) -> bool:
    # The content type says it; the binding forbids to say it twice.
    return name.startswith(_PREFIX) and name != "ce-datacontenttype"


def _is_of_the_request(name: str) -> bool:
    return is_owned(name) or name in _ABOUT_THE_REQUEST or name.startswith(_FORWARDED)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
