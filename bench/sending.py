"""Each publisher, in batches, against its client library's own fastest confirmed way. Kafka's is in the drain."""

from __future__ import annotations

from collections.abc import Iterator

from bench import publishers_amqp, publishers_nats, publishers_redis_streams, publishers_sqs
from bench.table import Row

BROKERS = (publishers_amqp, publishers_nats, publishers_redis_streams, publishers_sqs)


def run(*, quick: bool) -> Iterator[Row]:
    """The rows of each broker."""
    for broker in BROKERS:
        yield from broker.rows(quick)
