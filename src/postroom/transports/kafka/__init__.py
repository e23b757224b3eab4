"""Deliveries to Kafka and from it: CloudEvents in binary mode, an idempotent producer, offsets committed when done.

```
   publish ─▶ a producer of its own ─▶ look: is the broker there, and the topics?     connection.py
                                       produce all, flush, purge what is unanswered   connection.py
                                       what was refused in company goes again, alone  batch.py
```

A producer is one of librdkafka's, and serves one batch at a time: the thread that publishes polls it, and what is purged when
the time is up is that batch alone. Nothing is left in a producer when `publish` returns.

```
   the group ─▶ a thread that always polls ─▶ what is in flight ─▶ receive       receiver.py, ../inflight.py
        ▲                  │                          │ ▲
        └── commit ◀───────┘ ◀──── what is done ──────┘ └── ack, nack, terminate offsets.py
```

A partition is committed up to the first record that is not done. What is refused stays in flight, and its key waits with it.
"""

from postroom.errors import MissingDependency

try:
    import confluent_kafka  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries to Kafka need confluent-kafka, which is not installed: run `pip install 'postroom[kafka]'`.",
        extra="kafka",
    ) from exc

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.transports import GROUP_DEFAULT, SOURCE_DEFAULT
from postroom.transports.kafka.consumer import PREFETCH_DEFAULT, KafkaConsumer
from postroom.transports.kafka.publisher import KafkaPublisher

__all__ = ["KafkaConsumer", "KafkaPublisher", "open_consumer", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return KafkaPublisher(url, source=options.source or SOURCE_DEFAULT)


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    prefetch = PREFETCH_DEFAULT if options.prefetch is None else options.prefetch
    return KafkaConsumer(url, group=options.group or GROUP_DEFAULT, prefetch=prefetch)
