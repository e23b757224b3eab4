"""Deliveries to Kafka keep the contract of a transport, with a real broker on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from tests.servers.broker import Broker
from tests.servers.topics import everything_in, fresh_topic
from tests.unit.transports.records import message_in

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.kafka import KafkaPublisher

TOO_LARGE = 1_100_000


class KafkaBroker:
    """A topic of the run's broker; a test that wants it to go away has one of its own behind it."""

    def __init__(self, url: str, topic: str, own: Broker | None) -> None:
        self.url, self.topic, self.own = url, topic, own

    async def received(self) -> Sequence[Message]:
        records = await asyncio.to_thread(everything_in, self.url, self.topic)
        return [message_in(record) for record in records]

    async def go_away(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)


def wrong_urls(url: str) -> dict[str, str]:
    return {
        "topic": f"{url}/not-there",
        "host": "kafka://no-such-host.invalid:9092/orders",
        "tls": f"{url}/orders?security.protocol=ssl",
    }


class TestKafkaTransport(PublisherContract):
    @pytest.fixture
    def broker(self, request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
        goes_away = "away" in request.function.__name__
        own: Broker | None = request.getfixturevalue("kafka_broker") if goes_away else None
        url = own.url if own else request.getfixturevalue("kafka_url")
        with fresh_topic(url) as topic:
            yield KafkaBroker(url, topic, own)

    @pytest.fixture
    async def rig(self, broker: KafkaBroker) -> AsyncIterator[Rig]:
        publisher = KafkaPublisher(broker.url)
        await publisher.open()
        yield Rig(
            publisher=publisher,
            topic=broker.topic,
            unknown_topic=f"{broker.topic}.not",
            too_large=TOO_LARGE,
            wrong={what: KafkaPublisher(url) for what, url in wrong_urls(broker.url).items()},
        )
        await publisher.close()
