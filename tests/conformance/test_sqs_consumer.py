"""The receiving side of SQS keeps the contract, with a real server on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.servers import sqs
from tests.servers.gate import Gate
from tests.servers.queues import HOLD, client_of, fresh_queue, queue_url, with_queue

from postroom.contracts.transport import Consumer, Envelope, Sent
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.testing.contracts.consumer import Bench, data_of, numbered, receive
from postroom.transports.sqs import SqsConsumer, SqsPublisher

TIMEOUT = timedelta(seconds=10)


class SqsBench:
    """A queue, seen from the test; receivers go through a gate where the test wants SQS to go away."""

    longest_hold = timedelta(seconds=HOLD)

    def __init__(self, url: str, queue: str, gate: Gate | None = None) -> None:
        self.url, self.queue, self.gate = url, queue, gate
        self.publisher = SqsPublisher(with_queue(url, queue))
        self.consumers: list[SqsConsumer] = []

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> SqsConsumer:
        if group != "billing":
            pytest.skip("a queue is one group: another group is another queue, which SNS or a second route fills")
        url = sqs.url_at(self.gate.port) if self.gate else self.url
        consumer = SqsConsumer(with_queue(url, self.queue), prefetch=prefetch or 100)
        await consumer.open()
        self.consumers.append(consumer)
        return consumer

    def wrong(self) -> dict[str, Consumer]:
        urls = {
            "queue": with_queue(self.url, "not-there"),
            "host": "sqs://eu-central-1/orders?endpoint=http://no-such-host.invalid:4566",
        }
        return {what: SqsConsumer(url) for what, url in urls.items()}

    async def publish(self, *messages: Message) -> None:
        await self.publisher.open()
        outcomes = await self.publisher.publish([Envelope(message) for message in messages], timeout=TIMEOUT)
        assert list(outcomes) == [Sent()] * len(messages)

    async def publish_foreign(self) -> bool:
        def send() -> None:
            fifo = {"MessageGroupId": "them", "MessageDeduplicationId": "1"} if self.queue.endswith(".fifo") else {}
            client_of(self.url).send_message(QueueUrl=queue_url(self.url, self.queue), MessageBody="hello", **fifo)

        await asyncio.to_thread(send)
        return True

    async def vanish(self, consumer: Consumer) -> bool:
        assert isinstance(consumer, SqsConsumer)
        await vanished(consumer)
        return True

    async def go_away(self) -> bool:
        assert self.gate is not None
        self.gate.cut()
        return True

    async def come_back(self) -> None:
        assert self.gate is not None
        self.gate.open()

    async def close(self) -> None:
        for consumer in self.consumers:
            await consumer.close()
        await self.publisher.close()


async def vanished(consumer: SqsConsumer) -> None:
    """It ends without a word to SQS."""
    receiver, consumer._receiver = consumer._receiver, None
    assert receiver is not None
    receiver._background.cancel()
    await receiver._polling.end(0)
    await receiver._client.close()


class SqsContract(ConsumerContract):
    fifo = True

    @pytest.fixture
    async def bench(self, request: pytest.FixtureRequest, sqs_url: str) -> AsyncIterator[SqsBench]:
        goes_away = "away" in request.function.__name__
        with fresh_queue(sqs_url, fifo=self.fifo) as queue:
            bench = SqsBench(sqs_url, queue, request.getfixturevalue("sqs_gate") if goes_away else None)
            yield bench
            await bench.close()


class TestSqsFifoConsumer(SqsContract):
    async def test_messages_of_a_key_are_received_in_order(self, bench: Bench) -> None:
        # SQS gives out no more of a group while ten of it are in hand: they are acknowledged as they come.
        consumer = await bench.consumer()
        await bench.publish(*numbered(50))
        came: list[object] = []
        while len(came) < 50 and (deliveries := await receive(consumer, 10)):
            came += data_of(deliveries)
            await consumer.ack(deliveries)
        assert came == list(range(50))
