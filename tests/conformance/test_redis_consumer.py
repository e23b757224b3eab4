"""The receiving side of Redis Streams keeps the contract, with a real server on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.servers.redis_streams import client_of
from tests.servers.valkeyd import Valkey

from postroom.contracts.transport import Consumer, Envelope, Sent
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.transports.redis_streams import RedisConsumer, RedisPublisher

HOLD = timedelta(seconds=1.5)


class Stream:
    """A stream of the run's server; a test that wants it to go away has one of its own behind it."""

    longest_hold = HOLD

    def __init__(self, url: str, stream: str, own: Valkey | None) -> None:
        self.url, self.stream, self.own = url, stream, own
        self.consumers: list[RedisConsumer] = []

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> RedisConsumer:
        url = f"{self.url}/{self.stream}?hold={HOLD.total_seconds()}"
        consumer = RedisConsumer(url, group=group, prefetch=prefetch or 100)
        await consumer.open()
        self.consumers.append(consumer)
        return consumer

    def wrong(self) -> dict[str, Consumer]:
        urls = {
            "password": f"{self.url.replace('://', '://nobody:wrong@')}/orders",
            "host": "redis://no-such-host.invalid:6379/orders",
            "stream": f"{self.url}/not-there?create=off",
        }
        return {what: RedisConsumer(url) for what, url in urls.items()}

    async def publish(self, *messages: Message) -> None:
        publisher = RedisPublisher(f"{self.url}/{self.stream}")
        await publisher.open()
        outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=10))
        await publisher.close()
        assert {type(outcome) for outcome in outcomes} == {Sent}

    async def publish_foreign(self) -> bool:
        def add() -> None:
            with client_of(self.url) as client:
                client.xadd(self.stream, {"hello": "world"})

        await asyncio.to_thread(add)
        return True

    async def vanish(self, consumer: RedisConsumer) -> bool:
        life, consumer._receiver = consumer._receiver, None
        assert life is not None
        await life.close()  # as the kernel does for a process that was killed
        consumer._is_open = False
        return True

    async def go_away(self) -> bool:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)
        return True

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)


class TestRedisConsumer(ConsumerContract):
    @pytest.fixture
    async def bench(self, request: pytest.FixtureRequest, redis_stream: str) -> AsyncIterator[Stream]:
        goes_away = "away" in request.function.__name__
        own: Valkey | None = request.getfixturevalue("redis_server") if goes_away else None
        stream = Stream(own.url if own else request.getfixturevalue("redis_url"), redis_stream, own)
        yield stream
        for consumer in stream.consumers:
            await consumer.close()
