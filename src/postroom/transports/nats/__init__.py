"""Deliveries to and from NATS JetStream: CloudEvents in headers, every message confirmed by the stream itself.

```
   publish ─▶ a connection ─▶ the first of each key at once, the next when that one is confirmed        batch.py
              of its own      what nobody answered: is the stream there, does it cover the subject?     publisher.py

   receive ◀─ one pull at a time: who has it receives, others of the group stand by                       receiver.py
              in order, and nothing is given while something is in flight at somebody else                 ../inflight.py
```

Only JetStream: what is published to plain NATS and met by no stream is lost without a word. The library's own way to publish
many (`publish_async`) is not used: it never answers for a message that the stream refuses.
"""

from postroom.errors import MissingDependency

try:
    import nats  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries to NATS need nats-py, which is not installed: run `pip install 'postroom[nats]'`.", extra="nats"
    ) from exc

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.transports import GROUP_DEFAULT, SOURCE_DEFAULT
from postroom.transports.nats.consumer import PREFETCH_DEFAULT, NatsConsumer
from postroom.transports.nats.publisher import NatsPublisher

__all__ = ["NatsConsumer", "NatsPublisher", "open_consumer", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return NatsPublisher(url, source=options.source or SOURCE_DEFAULT)


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    return NatsConsumer(url, group=options.group or GROUP_DEFAULT, prefetch=options.prefetch or PREFETCH_DEFAULT)
