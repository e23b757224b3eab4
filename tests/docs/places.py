"""The brokers of the pages: what is written there, and the real one that takes its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.servers import queues, rabbit_queues, streams
from tests.servers.queues import fresh_queue, with_queue
from tests.servers.redis_streams import messages_in
from tests.servers.topics import everything_in

from postroom import Message, open_publisher
from postroom.contracts.transport import Envelope, Outcome, TransportOptions
from postroom.transports.sqs.decoding import event_in


@dataclass(frozen=True)
class Place:
    """Somewhere at a broker where nobody else is."""

    written: str
    """The URL in the pages."""
    url: str
    """The real one."""
    keys: Callable[[], list[str | None]]
    """The keys of all that is there now."""

    def put_into(self, code: str) -> str:
        """The code with the real URL."""
        assert self.written in code, f"a block for this broker says {self.written}"
        return code.replace(self.written, self.url)


def at_kafka(server: str, topic: str) -> Place:
    """A topic."""

    def keys() -> list[str | None]:
        return [(each.key() or b"").decode() for each in everything_in(server, topic)]

    return Place("kafka://broker:9092/orders", f"{server}/{topic}", keys)


def at_redis(server: str, stream: str) -> Place:
    """A stream."""
    url = f"{server}/{stream}"
    return Place("redis://server:6379/orders", url, lambda: [each.key for each in messages_in(server, stream)])


@contextmanager
def at_sqs(server: str) -> Iterator[Place]:
    """A queue in order."""
    with fresh_queue(server) as queue:

        def keys() -> list[str | None]:
            return [event_in(each["Body"], {})[0].key for each in queues.everything_in(server, queue)]

        yield Place("sqs://eu-central-1/orders.fifo", with_queue(server, queue), keys)


@contextmanager
def at_nats(server: str) -> Iterator[Place]:
    """A stream with subjects of its own."""
    with streams.fresh_stream(server) as stream:

        def keys() -> list[str | None]:
            return [(each.headers or {})["ce-subject"] for each in streams.everything_in(server, stream)]

        yield Place("nats://broker:4222/ORDERS?subject=orders", f"{server}/{stream}?subject={stream}", keys)


@contextmanager
def at_rabbitmq(server: str) -> Iterator[Place]:
    """An exchange with a queue of the same name behind it."""
    name = rabbit_queues.fresh_name()

    async def make() -> None:
        await rabbit_queues.make_exchange(server, name)
        await rabbit_queues.make_queue(server, name)
        await rabbit_queues.bind(server, name, name)

    def keys() -> list[str | None]:
        found = asyncio.run(rabbit_queues.everything_in(server, name))
        return [str((each.header.properties.headers or {})["cloudEvents_subject"]) for each in found]

    asyncio.run(make())
    yield Place("amqp://broker/?exchange=orders", f"{server}?exchange={name}", keys)
    asyncio.run(rabbit_queues.remove(server, name, f"{name}.billing"))


def send(url: str, **options: Any) -> Outcome:
    """Sends one message there, of type order.paid and key order-7, and gives back what became of it."""

    async def publish() -> Outcome:
        publisher = open_publisher(url, TransportOptions(**options))
        await publisher.open()
        message = Message("order.paid", key="order-7", data={"amount": 12})
        (outcome,) = await publisher.publish([Envelope(message)], timeout=timedelta(seconds=10))
        await publisher.close()
        return outcome

    return asyncio.run(publish())
