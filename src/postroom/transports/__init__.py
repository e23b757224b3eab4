"""The brokers Postroom knows, by the scheme of their URL. Client libraries are imported when one is opened, never before."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.errors import ConfigError
from postroom.urls import redact, split_scheme

SOURCE_DEFAULT = "postroom"
GROUP_DEFAULT = "postroom"


@dataclass(frozen=True, slots=True)
class Known:
    """A transport: its module has `open_publisher(url, options)` and, where one can receive
    from it, `open_consumer(url, options)`."""

    module: str
    example: str
    honours: frozenset[str] = frozenset()
    """The options that its publisher can honour."""
    receives: frozenset[str] | None = None
    """The options that its consumer can honour; None: it has none."""
    one_group: str | None = None
    """A parameter of its URL that names a queue: whoever receives from that shares its messages, so there is no group."""


_HTTP = frozenset({"source", "secrets", "public_only", "concurrency"})
_BROKER = frozenset({"source"})
_GROUPS = frozenset({"group", "prefetch"})
_WEBHOOKS = frozenset({"prefetch", "secrets", "unsigned"})

TRANSPORTS = {
    "memory": Known("memory", "memory://shop/orders", receives=_GROUPS),
    "null": Known("null", "null://"),
    "local": Known("local", "local://shop.mail:send", frozenset({"concurrency"})),
    "http": Known("http", "http://localhost:8080/hooks", _HTTP, receives=_WEBHOOKS),
    "https": Known("http", "https://shop.example/hooks", _HTTP),
    "kafka": Known("kafka", "kafka://broker:9092/orders", _BROKER, receives=_GROUPS),
    "amqp": Known("amqp", "amqp://broker/?exchange=orders", _BROKER, _GROUPS, "queue"),
    "amqps": Known("amqp", "amqps://broker/?exchange=orders", _BROKER, _GROUPS, "queue"),
    "nats": Known("nats", "nats://broker:4222/ORDERS?subject=orders.paid", _BROKER, receives=_GROUPS),
    "tls": Known("nats", "tls://broker:4222/ORDERS?subject=orders.paid", _BROKER, receives=_GROUPS),
    "redis": Known("redis_streams", "redis://server:6379/orders", _BROKER, _GROUPS),
    "rediss": Known("redis_streams", "rediss://server:6379/orders", _BROKER, _GROUPS),
    "valkey": Known("redis_streams", "valkey://server:6379/orders", _BROKER, _GROUPS),
    "valkeys": Known("redis_streams", "valkeys://server:6379/orders", _BROKER, _GROUPS),
    "sqs": Known("sqs", "sqs://eu-central-1/orders.fifo", _BROKER, receives=frozenset({"prefetch"})),
}
"""What can be opened. A new transport is a line here, and a module of that name in this package."""


def open_publisher(url: str, options: TransportOptions | None = None) -> Publisher:
    """Return the publisher for this URL. It connects when it is opened: `await publisher.open()`.

    Raises ConfigError for a URL it does not know, and for an option that this transport cannot honour."""
    options = options or TransportOptions()
    scheme = known_scheme(url)
    able = {name: known.honours for name, known in TRANSPORTS.items()}
    _refuse(url, options.asked - able[scheme], able, "send to")
    publisher: Publisher = _maker(scheme, "open_publisher")(url, options)
    return publisher


def open_consumer(url: str, options: ConsumerOptions | None = None) -> Consumer:
    """Return the consumer for this URL. It connects when it is opened: `await consumer.open()`.

    Raises ConfigError for a URL it does not know or nothing can be received from, and for an option it cannot honour."""
    options = options or ConsumerOptions()
    scheme = known_scheme(url)
    able = {name: known.receives for name, known in TRANSPORTS.items() if known.receives is not None}
    if scheme not in able:
        examples = ", ".join(TRANSPORTS[name].example for name in able)
        raise ConfigError(f"Nothing can be received from {redact(url)}; give a URL like {examples}.", scheme=scheme)
    _refuse(url, options.asked - able[scheme], able, "receive from")
    consumer: Consumer = _maker(scheme, "open_consumer")(url, options)
    return consumer


def known_scheme(url: str) -> str:
    """The scheme of a URL that can be opened; ConfigError, with examples, for any other."""
    scheme, _ = split_scheme(url)
    if scheme not in TRANSPORTS:
        examples = ", ".join(known.example for known in TRANSPORTS.values())
        raise ConfigError(
            f"Postroom knows no transport {scheme}:// (in {redact(url)}); give one like {examples}.", scheme=scheme
        )
    return scheme


def honoured(url: str) -> frozenset[str]:
    """The options that the publisher of this URL can honour."""
    return TRANSPORTS[known_scheme(url)].honours


def received(url: str) -> frozenset[str]:
    """The options that the consumer of this URL can honour; none where nothing can be received from it."""
    known = TRANSPORTS[known_scheme(url)]
    names = {part.partition("=")[0] for part in url.partition("?")[2].split("&")}
    return (known.receives or frozenset()) - ({"group"} if known.one_group in names else frozenset())


def _refuse(url: str, vain: Collection[str], able: dict[str, frozenset[str]], verb: str) -> None:
    """ConfigError where an option is asked for in vain."""
    if vain:
        others = [scheme for scheme, honours in able.items() if honours.issuperset(vain)]
        remedy = f", or {verb} {'://, '.join(sorted(others))}://" if others else ""
        raise ConfigError(f"{redact(url)} cannot honour {' and '.join(sorted(vain))}: leave it out{remedy}.")


def _maker(scheme: str, side: str) -> Callable[..., Any]:
    made: Callable[..., Any] = getattr(import_module(f"{__name__}.{TRANSPORTS[scheme].module}"), side)
    return made
