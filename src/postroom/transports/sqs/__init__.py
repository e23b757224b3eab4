"""Amazon SQS: CloudEvents as JSON text, in batches of ten, every message's own answer read.

```
   publish ─▶ the queues, and how large a message they take          connection.py
              the head of every key, ten to a request, many at once  batch.py
              Successful[] and Failed[]: an outcome each             outcomes.py

   receive ◀─ what was polled, and is prolonged while in flight      consumer.py, polling.py, decoding.py
   ack ─────▶ delete, ten to a request                               acknowledging.py
   nack ────▶ visible again later; on FIFO its group waits for it    acknowledging.py
```

A FIFO queue keeps the order of each key, which is its group there. A standard queue keeps none, and may deliver twice.
"""

from postroom.errors import MissingDependency

try:
    import aiobotocore  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries to SQS need aiobotocore, which is not installed: run `pip install 'postroom[sqs]'`.", extra="sqs"
    ) from exc

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.transports import SOURCE_DEFAULT
from postroom.transports.sqs.consumer import PREFETCH_DEFAULT, SqsConsumer
from postroom.transports.sqs.publisher import SqsPublisher

__all__ = ["SqsConsumer", "SqsPublisher", "open_consumer", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return SqsPublisher(url, source=options.source or SOURCE_DEFAULT)


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    return SqsConsumer(url, prefetch=options.prefetch or PREFETCH_DEFAULT)
