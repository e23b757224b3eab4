"""A Kafka to measure with: Apache Kafka where it can be had, else librdkafka's own mock of a broker. It says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.servers import Server, Unavailable, start
from tests.servers.run import Run

from bench.process import Process
from bench.table import progress

TOPIC = "bench"
PARTITIONS = 4
_kept: list[Any] = []


@dataclass(frozen=True, slots=True)
class Kafka:
    """Where it is, and in a phrase what it is."""

    bootstrap: str
    what: str

    @property
    def url(self) -> str:
        """The topic, as the relay is told of it."""
        return f"kafka://{self.bootstrap}/{TOPIC}"


@contextmanager
def kafka(*, quick: bool) -> Iterator[Kafka]:
    """A broker with the topic in it, gone afterwards. *quick*: the mock, which is there at once."""
    progress("starting Kafka")
    run = Run.create()
    try:
        server = None if quick else _real(run)
        if server is None:
            with Process() as process:
                yield Kafka(process.call(mock), "librdkafka's mock of Kafka")
        else:
            bootstrap = server.url.removeprefix("kafka://").rstrip("/")
            _create_topic(bootstrap)
            yield Kafka(bootstrap, f"Apache Kafka {server.version}")
    finally:
        run.close()


def _real(run: Run) -> Server | None:
    try:
        return start("kafka", run=run)
    except Unavailable:
        return None


def mock() -> str:
    """Start the mock in this process, where it lives as long as its producer; its address. It makes topics by itself."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 3})
    _kept.append(producer)
    brokers = producer.list_topics(timeout=30).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def _create_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: the answer never comes to one that is gone
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])[TOPIC].result(60)
