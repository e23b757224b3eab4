"""What stands in a Redis stream, and a hand that can do anything to its server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from postroom.transports.redis_streams.encoding import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from postroom.message import Message


@contextmanager
def client_of(url: str) -> Iterator[Redis]:
    """A client of the server at `url`, whose answers are bytes."""
    from redis import Redis

    with Redis.from_url(url, protocol=2, socket_timeout=10) as client:
        yield client


def entries_of(url: str, stream: str) -> list[list[bytes]]:
    """The fields of every entry of a stream, names and values in turn, in the order they came."""
    with client_of(url) as client:
        found: list[Any] = list(client.xrange(stream))  # type: ignore[arg-type]  # a sync client answers at once
    return [[word for pair in fields.items() for word in pair] for _, fields in found]


def messages_in(url: str, stream: str) -> list[Message]:
    """The messages that they are; an entry that is none fails the test."""
    messages = []
    for words in entries_of(url, stream):
        message, _, fault = read(words)
        assert fault is None, fault
        messages.append(message)
    return messages
