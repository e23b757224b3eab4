"""A message as the text of an SQS message: CloudEvents 1.0 in structured mode. `reading` is the way back.

SQS carries text, and ten attributes at most: so the whole event stands in the body. JSON data stands there as it is, byte for
byte; everything else, and JSON with a character that SQS refuses, as base64.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from postroom.message import Message, cloudevent

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


def body_of(message: Message, source: str) -> str:
    """The event as text that SQS takes."""
    attributes = cloudevent(message, source)
    if message.headers:
        attributes[HEADERS] = json.dumps(dict(message.headers))
    # What is not ASCII is escaped: no attribute can hold a character that SQS refuses.
    text = json.dumps(attributes, separators=(",", ":"))
    if message.body is None:
        return text
    data = _as_json(message.body) if is_json(message.content_type) else None
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


def is_json(content_type: str) -> bool:
    """Is what is called so JSON?"""
    return _JSON_TYPE.fullmatch(content_type) is not None


def _as_json(body: bytes) -> str | None:
    """The body as it can stand in the event and be cut out again, the same; None where it cannot."""
    try:
        text = body.decode()
        if _REFUSED.search(text) or text[:1] in " \t\n\r" or text[-1:] in " \t\n\r":
            return None
        DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Takes JSON alone: no NaN."""
