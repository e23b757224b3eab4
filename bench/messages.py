"""The messages that are written many at a time."""

from __future__ import annotations

from postroom.message import Message

KEYS = 500
BODY = 300


def messages(number: int, keys: int = KEYS) -> list[Message]:
    """Messages with bodies of 300 bytes, over 500 keys or as many as are given.

    >>> len(messages(3)[0].body)
    300
    """
    return [_message(each, keys) for each in range(number)]


def _message(number: int, keys: int) -> Message:
    start = b'{"order":%d,"amount":12,"note":"' % number
    body = start + b"x" * (BODY - len(start) - 2) + b'"}'
    return Message("order.paid", key=f"order-{number % keys}", body=body)
