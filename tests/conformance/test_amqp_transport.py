"""Deliveries to RabbitMQ keep the contract of a transport, with a real broker on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from aiormq.exceptions import DeliveryError
from tests.servers.rabbit import LARGEST, PASSWORD, Rabbit
from tests.servers.rabbit_queues import QUORUM, channel_to, everything_in, fresh_name, make_queue, remove

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.amqp import AmqpPublisher
from postroom.transports.amqp.encoding import read

FEW = {**QUORUM, "x-max-length": 1, "x-overflow": "reject-publish"}


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

    async def fill(self) -> None:
        async with channel_to(self.url) as channel:
            # A quorum queue lets a few more in than it has room for.
            for _ in range(50):
                try:
                    await channel.basic_publish(b"", routing_key=self.queue)
                except DeliveryError:
                    return
        pytest.fail("the queue was never full")

    async def make_room(self) -> None:
        async with channel_to(self.url) as channel:
            await channel.queue_purge(self.queue)


def wrong_urls(url: str) -> dict[str, str]:
    return {
        "password": f"{url.replace(PASSWORD, 'wrong')}?queue=orders",
        "user": f"{url.replace('://', '://nobody-')}?queue=orders",
        "vhost": f"{url}no-such-vhost?queue=orders",
        "queue": f"{url}?queue=not-there",
        "exchange": f"{url}?exchange=not-there&routing_key=orders",
        "host": "amqp://no-such-host.invalid/?queue=orders",
        "tls": f"{url.replace('amqp://', 'amqps://')}?queue=orders",
    }


class TestAmqpTransport(PublisherContract):
    @pytest.fixture
    async def broker(self, request: pytest.FixtureRequest) -> AsyncIterator[RabbitBroker]:
        goes_away = "away" in request.function.__name__
        own: Rabbit | None = request.getfixturevalue("amqp_server") if goes_away else None
        url = own.url if own else request.getfixturevalue("amqp_url")
        queue = fresh_name()
        await make_queue(url, queue, FEW if "full" in request.function.__name__ else QUORUM)
        if own:
            await asyncio.to_thread(own.write_names)
        yield RabbitBroker(url, queue, own)
        await remove(url, queue)

    @pytest.fixture
    async def rig(self, broker: RabbitBroker) -> AsyncIterator[Rig]:
        publisher = AmqpPublisher(broker.url)
        await publisher.open()
        yield Rig(
            publisher=publisher,
            topic=broker.queue,
            unknown_topic=f"{broker.queue}.not",
            too_large=LARGEST + 1,
            wrong={what: AmqpPublisher(url) for what, url in wrong_urls(broker.url).items()},
            can_be_full=True,
        )
        await publisher.close()
