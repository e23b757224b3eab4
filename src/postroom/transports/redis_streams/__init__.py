"""Deliveries to Redis Streams, and to Valkey's: an entry for each message, its fields a CloudEvent.

```
   publish ─▶ a connection of its own ─▶ chunk by chunk: one script that adds them    publisher.py, batch.py
                                         and stops a key at its first failure
                                         WAIT, WAITAOF where asked for, and counted    batch.py
   receive ─▶ what others left ─▶ what was refused ─▶ what is new                 consumer.py, ../inflight.py
              a heartbeat keeps what is in flight                                 receiver.py, pending.py
```

In a plain pipeline every command runs, whatever became of the one before: after a failure the later messages of a key would be
in the stream. The script runs as one, so nothing happens between two of its messages; and a thousand messages are one
command to pack, one to answer.
"""

from postroom.errors import MissingDependency

try:
    import hiredis  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
    import redis.asyncio  # noqa: F401
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries to Redis need redis-py with hiredis, which is not installed: run `pip install 'postroom[redis]'`.",
        extra="redis",
    ) from exc

from postroom.contracts.transport import Consumer, ConsumerOptions, Publisher, TransportOptions
from postroom.transports import GROUP_DEFAULT, SOURCE_DEFAULT
from postroom.transports.redis_streams.consumer import PREFETCH_DEFAULT, RedisConsumer
from postroom.transports.redis_streams.publisher import RedisPublisher

__all__ = ["RedisConsumer", "RedisPublisher", "open_consumer", "open_publisher"]


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return RedisPublisher(url, source=options.source or SOURCE_DEFAULT)


def open_consumer(url: str, options: ConsumerOptions) -> Consumer:
    """See `postroom.transports.open_consumer`."""
    return RedisConsumer(url, group=options.group or GROUP_DEFAULT, prefetch=options.prefetch or PREFETCH_DEFAULT)
