"""The brokers Postroom knows, by the scheme of their URL. Client libraries are imported when one is opened, never before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from postroom.errors import ConfigError
from postroom.urls import redact, split_scheme

if TYPE_CHECKING:
    from postroom.transport import Publisher

SCHEMES = {
    "memory": "memory://",
    "null": "null://",
    "local": "local://shop.mail:send",
    "http": "http://localhost:8080/hooks",
    "https": "https://shop.example/hooks",
    "kafka": "kafka://broker:9092/orders",
}
"""What can be opened, with an example of each."""


def open_transport(url: str) -> Publisher:
    """The transport this URL names. It connects when it is opened: `await publisher.open()`."""
    scheme, _ = split_scheme(url)
    if scheme not in _OPENERS:
        examples = ", ".join(SCHEMES.values())
        raise ConfigError(
            f"Postroom knows no transport {scheme}:// (in {redact(url)}); give one like {examples}.", scheme=scheme
        )
    return _OPENERS[scheme](url)


def _memory(url: str) -> Publisher:  # noqa: ARG001 - there is nothing in it
    from postroom.transports.memory import MemoryBroker, MemoryPublisher

    return MemoryPublisher(MemoryBroker())


def _null(url: str) -> Publisher:  # noqa: ARG001 - there is nothing in it
    from postroom.transports.null import NullPublisher

    return NullPublisher()


def _local(url: str) -> Publisher:
    from postroom.transports.local import LocalPublisher, load

    return LocalPublisher(load(split_scheme(url)[1]))


def _http(url: str) -> Publisher:
    from postroom.transports.http import HttpPublisher

    return HttpPublisher(url)


def _kafka(url: str) -> Publisher:
    from postroom.transports.kafka import KafkaPublisher

    return KafkaPublisher(url)


_OPENERS: dict[str, Callable[[str], Publisher]] = {
    "memory": _memory,
    "null": _null,
    "local": _local,
    "http": _http,
    "https": _http,
    "kafka": _kafka,
}
