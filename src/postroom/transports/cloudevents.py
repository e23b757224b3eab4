"""A CloudEvent that is all in the body: structured mode, JSON format. Transports that read both modes share this."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from postroom import codec
from postroom.errors import InvalidMessage
from postroom.text import is_storable

MEDIA_TYPE = "application/cloudevents+json"
FAMILY = "application/cloudevents"
"""What every structured event's media type begins with, whatever its format."""


class Structured(NamedTuple):
    """What stood in the body."""

    attributes: dict[str, str]
    body: bytes | None


def is_structured(content_type: str) -> bool:
    """Is the whole event in the body, in some format?

    >>> is_structured("Application/CloudEvents+JSON; charset=UTF-8"), is_structured("application/json")
    (True, False)
    """
    return content_type.strip().lower().startswith(FAMILY)


def is_json(content_type: str) -> bool:
    """Is it the format that can be read here, and one event?"""
    return content_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def read(event: bytes) -> Structured:
    """The attributes and the data of an event in JSON format; InvalidMessage when it is none."""
    found = codec.decode(event)
    if not isinstance(found, dict):
        raise InvalidMessage("It is a structured CloudEvent, but not a JSON object: send one object with id and type.")
    if "data" in found and "data_base64" in found:
        raise InvalidMessage("It has both data and data_base64: send one of them.")
    attributes = {
        name: _text(value) for name, value in found.items() if name not in {"data", "data_base64"} and value is not None
    }
    return Structured(attributes, _body(found, attributes.get("datacontenttype", codec.JSON)))


def _body(found: dict[str, Any], content_type: str) -> bytes | None:
    if "data_base64" in found:
        try:
            return base64.b64decode(found["data_base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidMessage("Its data_base64 is not base64: encode the data again.") from None
    if "data" not in found:
        return None
    data = found["data"]
    if isinstance(data, str) and not _is_json_kind(content_type):
        if not is_storable(data.replace("\0", "")):
            raise InvalidMessage("Its data hold half of a surrogate pair: send text that is whole UTF-8.")
        return data.encode()
    return codec.encode(data)


def _is_json_kind(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int)):
        return codec.encode(value).decode()
    raise InvalidMessage("One of its attributes is neither text, number nor true or false: send it as a text.")
