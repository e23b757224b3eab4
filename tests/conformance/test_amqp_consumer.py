"""The receiving side of RabbitMQ keeps the contract, with a real broker on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.servers.rabbit import PASSWORD, Rabbit
from tests.servers.rabbit_queues import channel_to, fresh_name, make_exchange, remove

from postroom.contracts.transport import Consumer, Envelope, Sent
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.transports.amqp import AmqpConsumer, AmqpPublisher

GROUPS = ("billing", "mailing")


class RabbitBench:
    """An exchange of the run's broker; a test that wants it to go away has one of its own behind it."""

    longest_hold = None  # half an hour, which RabbitMQ looks at once a minute: nothing to be waited for here

    def __init__(self, url: str, own: Rabbit | None) -> None:
        self.server, self.exchange, self.own = url, fresh_name(), own
        self.url = f"{url}?exchange={self.exchange}"
        self.opened: list[AmqpConsumer] = []
        self.publisher = AmqpPublisher(self.url)

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> Consumer:
        consumer = AmqpConsumer(self.url, group=group, prefetch=prefetch)
        await consumer.open()
        self.opened.append(consumer)
        return consumer

    def wrong(self) -> dict[str, Consumer]:
        url = self.url.partition("?")[0]
        urls = {
            "password": f"{url.replace(PASSWORD, 'wrong')}?queue=orders",
            "vhost": f"{url}no-such-vhost?queue=orders",
            "queue": f"{url}?queue=not-there",
            "exchange": f"{url}?exchange=not-there",
            "host": "amqp://no-such-host.invalid/?queue=orders",
            "tls": f"{url.replace('amqp://', 'amqps://')}?queue=orders",
        }
        return {what: AmqpConsumer(each) for what, each in urls.items()}

    async def publish(self, *messages: Message) -> None:
        batch = [Envelope(message, "order.paid") for message in messages]
        outcomes = await self.publisher.publish(batch, timeout=timedelta(seconds=10))
        assert [type(outcome) for outcome in outcomes] == [Sent] * len(messages), outcomes

    async def publish_foreign(self) -> bool:
        async with channel_to(self.server) as channel:
            await channel.basic_publish(b"\xff no event", exchange=self.exchange, routing_key="order.paid")
        return True

    async def vanish(self, consumer: Consumer) -> bool:
        assert isinstance(consumer, AmqpConsumer)
        assert consumer._receiver is not None
        consumer._receiver.cut()
        return True

    async def go_away(self) -> bool:
        assert self.own is not None
        await asyncio.to_thread(self.own.write_names)
        await asyncio.to_thread(self.own.kill)
        return True

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)


class TestAmqpConsumer(ConsumerContract):
    @pytest.fixture
    async def bench(self, request: pytest.FixtureRequest) -> AsyncIterator[RabbitBench]:
        goes_away = "away" in request.function.__name__
        own: Rabbit | None = request.getfixturevalue("amqp_server") if goes_away else None
        bench = RabbitBench(own.url if own else request.getfixturevalue("amqp_url"), own)
        await make_exchange(bench.server, bench.exchange)
        await bench.publisher.open()
        yield bench
        for consumer in bench.opened:
            await consumer.close()
        await bench.publisher.close()
        await remove(bench.server, bench.exchange, *(f"{bench.exchange}.{group}" for group in GROUPS))
