"""A broker inside the process: for tests, for demos, and to see what would have been sent.

`memory://` is one of its own for whoever opens it; `memory://shop/orders` is the topic `orders` of the one called `shop`, the
same for all of this process.
"""

from __future__ import annotations

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.errors import ConfigError
from postroom.transports import GROUP_DEFAULT
from postroom.transports.memory.broker import TOPIC_DEFAULT, MemoryBroker
from postroom.transports.memory.consumer import PREFETCH_DEFAULT, MemoryConsumer
from postroom.transports.memory.publisher import MemoryPublisher
from postroom.urls import split_scheme

__all__ = ["TOPIC_DEFAULT", "MemoryBroker", "MemoryConsumer", "MemoryPublisher", "open_consumer", "open_publisher"]

_named: dict[str, MemoryBroker] = {}


def open_publisher(url: str, options: TransportOptions) -> Publisher:  # noqa: ARG001 - there is nothing to choose
    """See `postroom.transports.open_transport`."""
    broker, topic = _read(url)
    return MemoryPublisher(broker, topic=topic)


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    if not split_scheme(url)[1].strip("/"):
        raise ConfigError(f"{url} is a new broker with nothing in it; name one to receive from: memory://shop/orders.")
    broker, topic = _read(url)
    return MemoryConsumer(
        broker, topic, group=options.group or GROUP_DEFAULT, prefetch=options.prefetch or PREFETCH_DEFAULT
    )


def _read(url: str) -> tuple[MemoryBroker, str]:
    name, _, topic = split_scheme(url)[1].partition("/")
    broker = _named.setdefault(name, MemoryBroker()) if name else MemoryBroker()
    return broker, topic or TOPIC_DEFAULT
