"""Deliveries to RabbitMQ keep the contract of a transport, with a real broker on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.servers.rabbit import LARGEST, Rabbit
from tests.servers.rabbit_queues import everything_in, fresh_name, make_queue, remove

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.amqp import AmqpPublisher
from postroom.transports.amqp.binding import read


class RabbitBroker:
    """A queue of the run's broker; a test that wants it to go away has one of its own behind it."""

    def __init__(self, url: str, queue: str, own: Rabbit | None) -> None:
        self.url, self.queue, self.own = url, queue, own

    async def received(self) -> Sequence[Message]:
        return [
            read(each.header.properties, each.body, topic=self.queue, redelivered=False).message
            for each in await everything_in(self.url, self.queue)
        ]

    async def go_away(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)


class TestAmqpTransport(PublisherContract):
    @pytest.fixture
    async def broker(self, request: pytest.FixtureRequest) -> AsyncIterator[RabbitBroker]:
        goes_away = "away" in request.function.__name__
        own: Rabbit | None = request.getfixturevalue("amqp_server") if goes_away else None
        url = own.url if own else request.getfixturevalue("amqp_url")
        queue = fresh_name()
        await make_queue(url, queue)
        if own:
            await asyncio.to_thread(own.write_names)
        yield RabbitBroker(url, queue, own)
        await remove(url, queue)

    @pytest.fixture
    async def rig(self, broker: RabbitBroker) -> AsyncIterator[Rig]:
        publisher = AmqpPublisher(broker.url)
        await publisher.open()
        yield Rig(publisher=publisher, topic=broker.queue, unknown_topic=f"{broker.queue}.not", too_large=LARGEST + 1)
        await publisher.close()
