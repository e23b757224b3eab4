"""Receiving from Kafka keeps the contract of a consumer, with a real broker on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Producer
from tests.servers.broker import Broker
from tests.servers.topics import fresh_topic, servers_of
from tests.unit.transports.faraway import FarAway

from postroom.contracts.transport import Consumer, ConsumerOptions, Envelope, Sent
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.transports import open_consumer
from postroom.transports.kafka import KafkaPublisher

pytestmark = pytest.mark.timeout(240)

PACE = "session.timeout.ms=6000&heartbeat.interval.ms=500&max.poll.interval.ms=6000"
"""As short as a broker allows by default."""


class KafkaTopic:
    """A topic of the run's broker; a test that wants the broker to go away has one of its own behind it."""

    longest_hold = timedelta(seconds=6)

    def __init__(self, url: str, topic: str, own: Broker | None, *, may_vanish: bool) -> None:
        self.url, self.topic, self.own, self.may_vanish = url, topic, own, may_vanish
        self.publisher = KafkaPublisher(f"{url}/{topic}")
        self.opened: list[Consumer] = []

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> Consumer:
        url, options = (
            f"{self.url}/{self.topic}?{PACE}",
            ConsumerOptions(group=f"{self.topic}.{group}", prefetch=prefetch),
        )
        if self.may_vanish and not self.opened:
            consumer: Consumer = FarAway(url, options)
        else:
            consumer = open_consumer(url, options)
        self.opened.append(consumer)
        await consumer.open()
        return consumer

    def wrong(self) -> dict[str, Consumer]:
        urls = {
            "topic": f"{self.url}/not-there",
            "host": "kafka://no-such-host.invalid:9092/orders",
            "tls": f"{self.url}/{self.topic}?security.protocol=ssl",
        }
        return {what: open_consumer(url) for what, url in urls.items()}

    async def publish(self, *messages: Message) -> None:
        outcomes = await self.publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=20))
        assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes

    async def publish_foreign(self) -> bool:
        producer = Producer({"bootstrap.servers": servers_of(self.url), "partitioner": "murmur2_random"})
        producer.produce(self.topic, b"\xff no event", "a", headers={"x": "y"})
        assert await asyncio.to_thread(producer.flush, 20) == 0
        return True

    async def vanish(self, consumer: Consumer) -> bool:
        assert isinstance(consumer, FarAway)
        await consumer.kill()
        return True

    async def go_away(self) -> bool:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)
        return True

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)


class TestKafkaConsumer(ConsumerContract):
    @pytest.fixture
    def topic(self, request: pytest.FixtureRequest) -> Iterator[KafkaTopic]:
        name = request.function.__name__
        own: Broker | None = request.getfixturevalue("kafka_broker") if "away" in name else None
        url = own.url if own else request.getfixturevalue("kafka_url")
        with fresh_topic(url) as topic:
            yield KafkaTopic(url, topic, own, may_vanish="dead" in name)

    @pytest.fixture
    async def bench(self, topic: KafkaTopic) -> AsyncIterator[KafkaTopic]:
        await topic.publisher.open()
        yield topic
        await topic.publisher.close()
        for consumer in topic.opened:
            await consumer.close()
