"""A message as an HTTP request: CloudEvents 1.0, binary mode."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from urllib.parse import quote

from postroom.clock import utcnow
from postroom.message import Message, cloudevent
from postroom.transports.http.signature import sign

# The binding's rule: space, " and % are encoded, and all that is not printable ASCII.
_SAFE = "".join(set(string.punctuation) - set('"%'))
_OWNED = frozenset(
    {
        *("content-length", "content-type", "expect", "host", "idempotency-key", "traceparent"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection"),
    }
)
"""What the request itself says, or what concerns one connection only: a message has no say in it."""
_OWNED_PREFIXES = ("ce-", "webhook-")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def headers_of(message: Message, *, source: str, keys: Sequence[bytes] = ()) -> dict[str, str]:
    """Every header of the request; ValueError when the message cannot be written as one."""
    headers = {name.lower(): value for name, value in message.headers.items() if not is_owned(name.lower())}
    attributes = cloudevent(message, source)
    headers["content-type"] = attributes.pop("datacontenttype")
    headers["idempotency-key"] = message.idempotency_key or str(message.id)
    if message.traceparent is not None:
        headers["traceparent"] = message.traceparent
    headers |= {f"ce-{name}": encode(value) for name, value in attributes.items()}
    if keys:
        headers |= sign(keys, str(message.id), int(utcnow().timestamp()), message.body or b"")
    for name, value in headers.items():
        value.encode()  # a lone surrogate is a ValueError here, before anything is sent
        if _CONTROL.search(value):
            raise ValueError(f"header {name!r} has a control character")
    return headers


def encode(value: str) -> str:
    """An attribute's value as a header carries it.

    >>> encode('klíč 7%')
    'kl%C3%AD%C4%8D%207%25'
    """
    return quote(value, safe=_SAFE)


def is_owned(name: str) -> bool:
    """Is it a header that the request itself has a say in, and no message?"""
    return name in _OWNED or name.startswith(_OWNED_PREFIXES)
