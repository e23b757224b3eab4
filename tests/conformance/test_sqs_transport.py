"""Deliveries to SQS keep the contract of a transport, with a real server on the other side: FIFO and standard queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from tests.servers import sqs
from tests.servers.gate import Gate
from tests.servers.queues import everything_in, fresh_queue, with_queue

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.sqs import SqsPublisher
from postroom.transports.sqs.decoding import event_in

TOO_LARGE = 1_100_000


class SqsBroker:
    """A queue of the run's server; a test that wants it to go away has a gate before it."""

    def __init__(self, url: str, queue: str, gate: Gate | None) -> None:
        self.url, self.queue, self.gate = url, queue, gate

    async def received(self) -> Sequence[Message]:
        found = await asyncio.to_thread(everything_in, self.url, self.queue)
        read = [event_in(each["Body"], each.get("MessageAttributes", {})) for each in found]
        assert [fault for _, _, fault in read] == [None] * len(read)
        return [message for message, _, _ in read]

    async def go_away(self) -> None:
        assert self.gate is not None
        self.gate.cut()

    async def come_back(self) -> None:
        assert self.gate is not None
        self.gate.open()


def wrong_urls(url: str) -> dict[str, str]:
    return {
        "queue": with_queue(url, "not-there"),
        "host": "sqs://eu-central-1/orders?endpoint=http://no-such-host.invalid:4566",
    }


class TestSqsTransport(PublisherContract):
    @pytest.fixture(params=["fifo", "standard"])
    def broker(self, request: pytest.FixtureRequest, sqs_url: str) -> Iterator[SqsBroker]:
        goes_away = "away" in request.function.__name__
        gate: Gate | None = request.getfixturevalue("sqs_gate") if goes_away else None
        url = sqs.url_at(gate.port) if gate else sqs_url
        with fresh_queue(sqs_url, fifo=request.param == "fifo") as queue:
            yield SqsBroker(url, queue, gate)

    @pytest.fixture
    async def rig(self, broker: SqsBroker) -> AsyncIterator[Rig]:
        publisher = SqsPublisher(broker.url)
        await publisher.open()
        yield Rig(
            publisher=publisher,
            topic=broker.queue,
            unknown_topic=f"not-{broker.queue}",
            too_large=TOO_LARGE,
            wrong={what: SqsPublisher(url) for what, url in wrong_urls(broker.url).items()},
        )
        await publisher.close()
