"""A message as the text of an SQS message, and back: CloudEvents 1.0 in structured mode.

SQS carries text, and ten attributes at most: so the whole event stands in the body. JSON data stands there as it is, byte for
byte; everything else, and JSON with a character that SQS refuses, as base64.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from json.decoder import scanstring  # type: ignore[attr-defined]  # there since 2.6, and the only one that says where it ended
from typing import Any

from postroom.errors import InvalidMessage
from postroom.message import Message, cloudevent, from_cloudevent, uuid7

CONTENT_TYPE = "application/cloudevents+json"
ATTRIBUTES = {"content-type": {"DataType": "String", "StringValue": CONTENT_TYPE}}
"""The only attributes an SQS message of ours has: they say what the body is."""
ATTRIBUTES_SIZE = len("content-type") + len("String") + len(CONTENT_TYPE)
"""What they take of the largest size."""
HEADERS = "postroomheaders"
"""The extension with the message's own headers, as JSON: their names may not be names in CloudEvents."""
GROUP_MAX = 128

_JSON_TYPE = re.compile(r"[\w.+-]+/(?:[\w.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_REFUSED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GROUP = re.compile(rf"[!-~]{{1,{GROUP_MAX}}}")
_SPACE = re.compile(r"[ \t\n\r]*")


def body_of(message: Message, source: str) -> str:
    """The event as text that SQS takes."""
    attributes = cloudevent(message, source)
    if message.headers:
        attributes[HEADERS] = json.dumps(dict(message.headers))
    # What is not ASCII is escaped: no attribute can hold a character that SQS refuses.
    text = json.dumps(attributes, separators=(",", ":"))
    if message.body is None:
        return text
    data = _as_json(message.body) if _is_json(message.content_type) else None
    if data is None:
        return f'{text[:-1]},"data_base64":"{b64encode(message.body).decode()}"}}'
    return f'{text[:-1]},"data":{data}}}'


def group_of(message: Message) -> str:
    """The group of a FIFO queue that this message belongs to: its key, or the message alone.

    A key that may be no group's name, for its length or its characters, stands there as its hash."""
    if message.key is None:
        return message.id_text
    if _GROUP.fullmatch(message.key):
        return message.key
    return f"sha256-{sha256(message.key.encode(errors='surrogatepass')).hexdigest()}"


def event_in(body: str, attributes: Mapping[str, Any]) -> tuple[Message, str, str | None]:
    """The message in this text, who says it, and why it is none, if it is none: then it has the text as its body."""
    try:
        event = _members(body)
        message = from_cloudevent(_strings(event), _data_in(event), _headers_in(event, attributes))
    except (InvalidMessage, ValueError, RecursionError) as exc:
        said = str(exc).rstrip(".")
        fault = f"It is no CloudEvent in JSON: {said}." if not isinstance(exc, InvalidMessage) else str(exc)
        strange = Message("unreadable", body=body.encode(errors="replace"), content_type="text/plain", id=uuid7())
        return strange, "", fault
    source = event.get("source", ("", None))[1]
    return message, source if isinstance(source, str) else "", None


def _is_json(content_type: str) -> bool:
    return _JSON_TYPE.fullmatch(content_type) is not None


def _as_json(body: bytes) -> str | None:
    """The body as it can stand in the event and be cut out again, the same; None where it cannot."""
    try:
        text = body.decode()
        if _REFUSED.search(text) or text[:1] in " \t\n\r" or text[-1:] in " \t\n\r":
            return None
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_decoder = json.JSONDecoder(parse_constant=_no_constant)


def _members(text: str) -> dict[str, tuple[str, Any]]:
    """The members of the object in this text: each as it stands there, and as a value."""
    place = _after(text, 0, "{")
    members: dict[str, tuple[str, Any]] = {}
    while text[place : place + 1] != "}" or members:
        place = _after(text, place, '"')
        name, place = scanstring(text, place, True)
        begin = _after(text, place, ":")
        value, place = _decoder.raw_decode(text, begin)
        if name in members:
            raise ValueError(f"the name {name!r} stands in it twice")
        members[name] = (text[begin:place], value)
        place = _SPACE.match(text, place).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text[place : place + 1] == "}":
            break
        place = _after(text, place, ",")
    if text[place + 1 :].strip(" \t\n\r"):
        raise ValueError("something stands behind it")
    return members


def _after(text: str, place: int, expected: str) -> int:
    """Where the next thing begins behind this character, which must come now."""
    found = _SPACE.match(text, place).end()  # type: ignore[union-attr]
    if text[found : found + 1] != expected:
        raise ValueError(f"{expected} is missing at character {found}")
    behind = found + 1
    return behind if expected == '"' else _SPACE.match(text, behind).end()  # type: ignore[union-attr]


def _strings(event: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """Its attributes; those that are texts, which all of ours are."""
    return {name: value for name, (_, value) in event.items() if isinstance(value, str) and name != "data"}


def _data_in(event: Mapping[str, tuple[str, Any]]) -> bytes | None:
    if "data_base64" in event:
        packed = event["data_base64"][1]
        if not isinstance(packed, str):
            raise ValueError("its data_base64 is no text")
        return b64decode(packed, validate=True)
    if "data" not in event:
        return None
    as_it_stands, value = event["data"]
    content_type = event.get("datacontenttype", ("", "application/json"))[1]
    if isinstance(value, str) and isinstance(content_type, str) and not _is_json(content_type):
        return value.encode()
    return as_it_stands.encode()


def _headers_in(event: Mapping[str, tuple[str, Any]], attributes: Mapping[str, Any]) -> dict[str, str]:
    """The headers that the sender gave; and, from others, what stands in the attributes of the SQS message."""
    headers = {
        name: value["StringValue"]
        for name, value in attributes.items()
        if name not in ATTRIBUTES and isinstance(value.get("StringValue"), str)
    }
    own = event.get(HEADERS, ("", None))[1]
    read = json.loads(own) if isinstance(own, str) else {}
    if isinstance(read, dict):
        headers |= {name: value for name, value in read.items() if isinstance(value, str)}
    return headers
