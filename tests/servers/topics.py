"""Fresh Kafka topics, one per test, and what arrived in them."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer, Message

PATIENCE = 30


@contextmanager
def fresh_topic(url: str, partitions: int = 3) -> Iterator[str]:
    """A new, empty topic at the broker of `url`; deleted afterwards, if the broker still answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    name = f"test.{os.getpid()}.{secrets.token_hex(5)}"
    admin = AdminClient({"bootstrap.servers": servers_of(url), "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE)
    try:
        yield name
    finally:
        deleting = admin.delete_topics([name], request_timeout=2)[name]
        with suppress(KafkaException):
            deleting.result(PATIENCE)


def everything_in(url: str, topic: str) -> list[Message]:
    """All that the topic holds now, partition by partition, each in its order."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers_of(url), "group.id": f"{topic}.reader", "log_level": 0}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    found: list[Message] = []
    try:
        for number in consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)
            consumer.assign([TopicPartition(topic, number, low)])
            found += _read(consumer, high - low)
    finally:
        consumer.close()
    return found


def _read(consumer: Consumer, number: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < number:
        assert time.monotonic() < deadline, f"{len(found)} of {number} messages could be read"
        found += [message for message in consumer.consume(1000, timeout=1) if message.error() is None]
    return found


def servers_of(url: str) -> str:
    """What librdkafka calls bootstrap.servers."""
    return url.partition("://")[2].partition("/")[0]
