"""RabbitMQ, over AMQP 0-9-1: CloudEvents in headers; every message confirmed, every return a rejection.

```
   publish ─▶ a connection of its own, with one channel           connection.py
              the next message of a key goes when the one before  batch.py
              it is confirmed; all keys go side by side
              a message that closes the channel is found out,     batch.py, outcomes.py
              and the others go again on a new one

   receive ─▶ one connection, one channel, one queue              receiver.py
              what is in flight, and what is due again when       ../inflight.py
```

A connection that did not answer in time is cut off, so that nothing leaves it later.
"""

from postroom.errors import MissingDependency

try:
    import aiormq  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "RabbitMQ needs aiormq, which is not installed: run `pip install 'postroom[amqp]'`.", extra="amqp"
    ) from exc

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.transports import SOURCE_DEFAULT
from postroom.transports.amqp.consumer import AmqpConsumer
from postroom.transports.amqp.publisher import AmqpPublisher

__all__ = ["AmqpConsumer", "AmqpPublisher", "open_consumer", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return AmqpPublisher(url, source=options.source or SOURCE_DEFAULT)


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    return AmqpConsumer(url, group=options.group, prefetch=options.prefetch)
