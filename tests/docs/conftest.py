"""A place at each broker. The names begin with the server's: so it is fetched before a test's time runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.docs.places import Place, at_kafka, at_nats, at_rabbitmq, at_redis, at_sqs


@pytest.fixture
def kafka_place(kafka_url: str, kafka_topic: str) -> Place:
    """A topic that nobody else has."""
    return at_kafka(kafka_url, kafka_topic)


@pytest.fixture
def redis_place(redis_url: str, redis_stream: str) -> Place:
    """A stream that nobody else has."""
    return at_redis(redis_url, redis_stream)


@pytest.fixture
def sqs_place(sqs_url: str) -> Iterator[Place]:
    """A queue that nobody else has."""
    with at_sqs(sqs_url) as place:
        yield place


@pytest.fixture
def nats_place(nats_url: str) -> Iterator[Place]:
    """A stream that nobody else has."""
    with at_nats(nats_url) as place:
        yield place


@pytest.fixture
def amqp_place(amqp_url: str) -> Iterator[Place]:
    """An exchange and a queue that nobody else has."""
    with at_rabbitmq(amqp_url) as place:
        yield place
