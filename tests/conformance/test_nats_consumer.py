"""Receiving from NATS keeps the contract of a consumer, with a real server on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import nats
import pytest
from tests.servers.nats_server import NatsServer
from tests.servers.streams import fresh_stream

from postroom.contracts.transport import Consumer, Envelope, Sent
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.transports.nats import NatsConsumer, NatsPublisher
from postroom.transports.nats.consumer import PREFETCH_DEFAULT


class NatsBench:
    """A stream, seen from the test."""

    longest_hold: timedelta | None = timedelta(seconds=2)

    def __init__(self, url: str, stream: str, own: NatsServer | None) -> None:
        self.url, self.stream, self.own = url, stream, own
        self.subject = f"{stream}.paid"
        self.made: list[NatsConsumer] = []

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> NatsConsumer:
        url = f"{self.url}/{self.stream}?subject={self.subject}&ack_wait=2s"
        consumer = NatsConsumer(url, group=group, prefetch=prefetch or PREFETCH_DEFAULT)
        self.made.append(consumer)
        await consumer.open()
        return consumer

    def wrong(self) -> dict[str, Consumer]:
        urls = {
            "stream": f"{self.url}/NOT-THERE",
            "host": f"nats://no-such-host.invalid:4222/{self.stream}",
            "tls": f"{self.url.replace('nats://', 'tls://')}/{self.stream}",
        }
        return {what: NatsConsumer(url) for what, url in urls.items()}

    async def publish(self, *messages: Message) -> None:
        publisher = NatsPublisher(f"{self.url}/{self.stream}?subject={self.subject}")
        await publisher.open()
        outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=10))
        assert [type(each) for each in outcomes] == [Sent] * len(messages)
        await publisher.close()

    async def publish_foreign(self) -> bool:
        client = await nats.connect(self.url)
        await client.jetstream().publish(self.subject, b"\x00 not ours")
        await client.close()
        return True

    async def vanish(self, consumer: Any) -> bool:
        consumer._receiver.end()
        await consumer._receiver.connection.drop()
        return True

    async def go_away(self) -> bool:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)
        return True

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)


class TestNatsConsumer(ConsumerContract):
    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> Iterator[NatsBench]:
        goes_away = "away" in request.function.__name__
        own: NatsServer | None = request.getfixturevalue("nats_server") if goes_away else None
        url = own.url if own else request.getfixturevalue("nats_url")
        with fresh_stream(url) as stream:
            yield NatsBench(url, stream, own)

    @pytest.fixture
    async def bench(self, place: NatsBench) -> AsyncIterator[NatsBench]:
        yield place
        for consumer in place.made:
            await consumer.close()
