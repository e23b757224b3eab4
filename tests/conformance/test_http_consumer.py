"""Receiving webhooks keeps the contract of a consumer, as far as it applies: the sender is the one who keeps the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest
from tests.servers.ports import free_port

from postroom.contracts.transport import Consumer, ConsumerOptions, Envelope, Rejected, Sent
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.transports import open_consumer
from postroom.transports.http import HttpConsumer, HttpPublisher
from postroom.transports.http.consumer import stop_listening

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Senders:
    """Somebody who sends each message until it is taken, and never waits for one before sending the next.

    A relay would, for the sake of order; then no more than one of a key is ever in hand, and most cases could not be played.
    """

    longest_hold = timedelta(seconds=15)

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}/hooks"
        self.publisher = HttpPublisher(self.url, secrets=[SECRET], concurrency=100)
        self.opened: list[HttpConsumer] = []
        self.unsent: dict[Message, asyncio.Task[None] | None] = {}
        """In the order they were given, each with the attempt that is under way."""

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> Consumer:
        consumer = open_consumer(self.url, ConsumerOptions(prefetch=prefetch, secrets=(SECRET,)))
        assert isinstance(consumer, HttpConsumer)
        self.opened.append(consumer)
        await consumer.open()
        return consumer

    async def publish(self, *messages: Message) -> None:
        self.unsent |= dict.fromkeys(messages)

    async def publish_foreign(self) -> bool:
        return False  # it is answered by 400, and never comes in

    async def vanish(self, consumer: Consumer) -> bool:
        assert isinstance(consumer, HttpConsumer)
        assert consumer._listening is not None
        assert consumer._server is not None
        await stop_listening(consumer._listening)
        for connection in consumer._server.connections:
            assert connection.transport is not None
            connection.transport.abort()
        return True

    async def go_away(self) -> bool:
        return False  # there is no broker: the sender is one end, and we are the other

    async def come_back(self) -> None:
        raise NotImplementedError

    async def send(self) -> None:
        """For ever: start what is not under way, in order, each when the one before has arrived."""
        while True:
            for message, under_way in list(self.unsent.items()):
                if under_way is None and not await self._start(message):
                    break  # the first goes first again
            await asyncio.sleep(0.02)

    async def _start(self, message: Message) -> bool:
        """Did it arrive?"""
        if not self.opened:
            return False
        consumer = self.opened[-1]
        before = consumer._taken
        task = self.unsent[message] = asyncio.create_task(self._try(message))
        while not task.done() and consumer._taken <= before:
            await asyncio.sleep(0.001)
        return not task.done() or message not in self.unsent

    async def _try(self, message: Message) -> None:
        (outcome,) = await self.publisher.publish([Envelope(message)], timeout=timedelta(seconds=20))
        if isinstance(outcome, Sent | Rejected):  # a relay would not try it again either
            del self.unsent[message]
        else:
            self.unsent[message] = None


class TestHttpConsumer(ConsumerContract):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[Senders]:
        senders = Senders()
        await senders.publisher.open()
        sending = asyncio.create_task(senders.send())
        yield senders
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        for consumer in senders.opened:
            await consumer.close()
        tasks = [task for task in senders.unsent.values() if task is not None]
        await asyncio.gather(*tasks)
        await senders.publisher.close()
