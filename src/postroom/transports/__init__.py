"""The brokers Postroom knows, by the scheme of their URL. Client libraries are imported when one is opened, never before."""

from __future__ import annotations

from collections.abc import Callable

from postroom.errors import ConfigError
from postroom.transport import Publisher, TransportOptions
from postroom.urls import redact, split_scheme

SOURCE_DEFAULT = "postroom"
SCHEMES = {
    "memory": "memory://",
    "null": "null://",
    "local": "local://shop.mail:send",
    "http": "http://localhost:8080/hooks",
    "https": "https://shop.example/hooks",
    "kafka": "kafka://broker:9092/orders",
}
"""What can be opened, with an example of each."""

_OF_HTTP = frozenset({"source", "secrets", "public_only", "concurrency"})
HONOURED = {
    "memory": frozenset[str](),
    "null": frozenset[str](),
    "local": frozenset({"concurrency"}),
    "http": _OF_HTTP,
    "https": _OF_HTTP,
    "kafka": frozenset({"source"}),
}
"""Which options each of them can honour."""


def open_transport(url: str, options: TransportOptions | None = None) -> Publisher:
    """The transport this URL names. It connects when it is opened: `await publisher.open()`.

    Raises ConfigError for a URL it does not know, and for an option that this transport cannot honour."""
    options = options or TransportOptions()
    scheme = known_scheme(url)
    if vain := sorted(options.asked - HONOURED[scheme]):
        able = sorted(scheme for scheme, honoured in HONOURED.items() if honoured.issuperset(vain))
        raise ConfigError(
            f"{redact(url)} cannot honour {' and '.join(vain)}: leave it out, or send to {'://, '.join(able)}://.",
            scheme=scheme,
        )
    return _OPENERS[scheme](url, options)


def known_scheme(url: str) -> str:
    """The scheme of a URL that can be opened; ConfigError, with examples, for any other."""
    scheme, _ = split_scheme(url)
    if scheme not in _OPENERS:
        examples = ", ".join(SCHEMES.values())
        raise ConfigError(
            f"Postroom knows no transport {scheme}:// (in {redact(url)}); give one like {examples}.", scheme=scheme
        )
    return scheme


def _memory(url: str, options: TransportOptions) -> Publisher:  # noqa: ARG001 - there is nothing to choose
    from postroom.transports.memory import MemoryBroker, MemoryPublisher

    return MemoryPublisher(MemoryBroker())


def _null(url: str, options: TransportOptions) -> Publisher:  # noqa: ARG001 - there is nothing in it
    from postroom.transports.null import NullPublisher

    return NullPublisher()


def _local(url: str, options: TransportOptions) -> Publisher:
    from postroom.transports.local import CONCURRENCY_DEFAULT, LocalPublisher, load

    return LocalPublisher(load(split_scheme(url)[1]), concurrency=options.concurrency or CONCURRENCY_DEFAULT)


def _http(url: str, options: TransportOptions) -> Publisher:
    from postroom.transports.http import HttpPublisher
    from postroom.transports.http.publisher import CONCURRENCY_DEFAULT

    return HttpPublisher(
        url,
        source=options.source or SOURCE_DEFAULT,
        secrets=options.secrets,
        public_only=options.public_only,
        concurrency=options.concurrency or CONCURRENCY_DEFAULT,
    )


def _kafka(url: str, options: TransportOptions) -> Publisher:
    from postroom.transports.kafka import KafkaPublisher

    return KafkaPublisher(url, source=options.source or SOURCE_DEFAULT)


# A new transport: its opener here, and its scheme in SCHEMES, HONOURED and _OPENERS.
_OPENERS: dict[str, Callable[[str, TransportOptions], Publisher]] = {
    "memory": _memory,
    "null": _null,
    "local": _local,
    "http": _http,
    "https": _http,
    "kafka": _kafka,
}
