"""A JSON value to bytes and back, strictly: what one side writes, every other side can read.

Python's own encoder lets NaN, lone surrogates and any depth pass, and its decoder takes the last of two equal names.
Each of those is read differently, or not at all, somewhere down the line; so all of them are refused here, at the writer.
"""

from __future__ import annotations

import dataclasses
import json
import json.encoder
import re
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as clock_time
from enum import Enum
from typing import Any
from uuid import UUID

from postroom.errors import InvalidMessage

DEPTH_MAX = 64
"""How deep lists and objects may be nested. Readers with a small stack break on deeper ones."""

JSON = "application/json"

_TEXT = r'"(?:[^"\\]|\\.)*"'
_BRACKET = r"[\[\]{}]"


def encode(value: Any) -> bytes:
    """The value as compact UTF-8 JSON.

    Beside JSON's own kinds it takes what has one plain spelling in JSON: dataclasses, pydantic models, UUIDs, dates,
    decimals (as text) and enums. A set, NaN, an object of another kind is refused: there is no one right way to write it.

    >>> encode({"amount": 12, "tags": ("a", "é")})
    b'{"amount":12,"tags":["a","\\xc3\\xa9"]}'
    """
    try:
        text = _write(value)
        body = text.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(
            "The data is not a JSON value: a text in it holds a lone surrogate, which UTF-8 cannot carry; clean the text first."
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as exc:
        raise InvalidMessage(f"The data is not a JSON value: {_reason(exc)}.") from None
    except TypeError as exc:
        raise InvalidMessage(f"The data is not a JSON value: {exc}.") from None
    if _depth_above(text, DEPTH_MAX):
        raise _too_deep()
    return body


def decode(body: bytes) -> Any:
    """The value in these bytes, or InvalidMessage: repeated names, NaN, bad UTF-8 and endless nesting are refused.

    >>> decode(b'{"amount": 12}')
    {'amount': 12}
    """
    try:
        text = body.decode()
        value = _read(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as exc:  # UnicodeDecodeError and JSONDecodeError are ValueErrors, as is a number of 5,000 digits
        raise InvalidMessage(f"The body is not JSON: {exc}.") from None
    if _depth_above(text, DEPTH_MAX):
        raise _too_deep()
    return value


def _plain(value: Any) -> Any:
    """What the encoder does not know, in words it does."""
    from decimal import Decimal  # slow to import, and seldom in a message

    match value:
        case UUID() | Decimal():
            return str(value)
        case datetime() | date() | clock_time():
            return value.isoformat()
        case Enum():
            return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(
        f"a {type(value).__name__} has no spelling in JSON; turn it into lists, objects, texts and numbers first"
    )


def _writer() -> Callable[[Any], str]:
    """The standard encoder. Its inner one, where there is one, is made once: the outer makes it again for every value."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    # No markers: what contains itself is found by its depth.
    inner = make(None, _plain, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda value: "".join(inner(value, 0))


_write = _writer()


def _reason(exc: ValueError) -> str:
    said = str(exc)
    if "Out of range float" in said:
        return "NaN and infinity are not JSON numbers; use null or a text"
    return said


def _too_deep() -> InvalidMessage:
    return InvalidMessage(
        f"The data is nested deeper than {DEPTH_MAX} levels, which some readers cannot parse; flatten it.",
        limit=DEPTH_MAX,
    )


def _depth_above(text: str, limit: int) -> bool:
    # Counting brackets is an upper bound that costs nothing; only a suspicious text is walked.
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for bracket in re.findall(_BRACKET, re.sub(_TEXT, "", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > limit:
            return True
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is given twice in one object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_read = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant).decode
"""Made once: `json.loads` makes its decoder again for every value that is read in a way of one's own."""
