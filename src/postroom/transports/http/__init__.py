"""Deliveries by HTTP, and from it: CloudEvents, signed by Standard Webhooks, answered message by message."""

from postroom.errors import MissingDependency

try:
    import aiohttp  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries by HTTP need aiohttp, which is not installed: run `pip install 'postroom[http]'`.", extra="http"
    ) from exc

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.transports import SOURCE_DEFAULT
from postroom.transports.http.consumer import HttpConsumer
from postroom.transports.http.open_requests import PREFETCH_DEFAULT
from postroom.transports.http.publisher import CONCURRENCY_DEFAULT, HttpPublisher
from postroom.transports.http.receiver import Receiver

__all__ = ["HttpConsumer", "HttpPublisher", "Receiver", "open_consumer", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return HttpPublisher(
        url,
        source=options.source or SOURCE_DEFAULT,
        secrets=options.secrets,
        public_only=options.public_only,
        concurrency=options.concurrency or CONCURRENCY_DEFAULT,
    )


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    prefetch = PREFETCH_DEFAULT if options.prefetch is None else options.prefetch
    return HttpConsumer(url, secrets=options.secrets, unsigned=options.unsigned, prefetch=prefetch)
