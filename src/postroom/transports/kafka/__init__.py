"""Deliveries to Kafka: CloudEvents in binary mode, by an idempotent producer, every answer waited for.

```
   publish ─▶ a line of its own ─▶ look: is the broker there, and the topics?    line.py
                                   produce all, flush, purge what is unanswered   line.py
                                   what was refused in company goes again, alone  sending.py
```

A line is one librdkafka producer that serves one batch at a time: whoever publishes polls, and what is purged when the time
is up is that batch alone. Nothing is left in a line when `publish` returns.
"""

from postroom.errors import MissingDependency

try:
    import confluent_kafka  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries to Kafka need confluent-kafka, which is not installed: run `pip install 'postroom[kafka]'`.",
        extra="kafka",
    ) from exc

from postroom.transport import Publisher, TransportOptions
from postroom.transports import SOURCE_DEFAULT
from postroom.transports.kafka.publisher import KafkaPublisher

__all__ = ["KafkaPublisher", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return KafkaPublisher(url, source=options.source or SOURCE_DEFAULT)
