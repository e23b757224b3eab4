"""Deliveries to NATS keep the contract of a transport, with a real server on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from nats.js.api import DiscardPolicy
from tests.servers.nats_server import LARGEST, NatsServer
from tests.servers.streams import at_once, everything_in, fresh_stream

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.nats import NatsPublisher
from postroom.transports.nats.encoding import message_of

FEW: dict[str, Any] = {"discard": DiscardPolicy.NEW, "max_msgs": 2}


class NatsBroker:
    """A stream of the run's server; a test that wants it to go away has one of its own behind it."""

    def __init__(self, url: str, stream: str, own: NatsServer | None) -> None:
        self.url, self.stream, self.own = url, stream, own

    async def received(self) -> Sequence[Message]:
        found = await asyncio.to_thread(everything_in, self.url, self.stream)
        return [message_of(each.headers, each.data or b"")[0] for each in found]

    async def go_away(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)

    async def fill(self) -> None:
        for _ in range(2):
            await asyncio.to_thread(at_once, self.url, lambda js: js.publish(f"{self.stream}.other", b""))

    async def make_room(self) -> None:
        await asyncio.to_thread(at_once, self.url, lambda js: js.purge_stream(self.stream))


def wrong_urls(broker: NatsBroker) -> dict[str, str]:
    tls = broker.url.replace("nats://", "tls://")
    return {
        "stream": f"{broker.url}/NOT-THERE?subject=orders.paid",
        "subject": f"{broker.url}/{broker.stream}?subject=not-of-this-stream",
        "host": f"nats://no-such-host.invalid:4222/{broker.stream}?subject=orders.paid",
        "tls": f"{tls}/{broker.stream}?subject=orders.paid",
    }


class TestNatsTransport(PublisherContract):
    @pytest.fixture
    def broker(self, request: pytest.FixtureRequest) -> Iterator[NatsBroker]:
        goes_away = "away" in request.function.__name__
        own: NatsServer | None = request.getfixturevalue("nats_server") if goes_away else None
        url = own.url if own else request.getfixturevalue("nats_url")
        with fresh_stream(url, **(FEW if "full" in request.function.__name__ else {})) as stream:
            yield NatsBroker(url, stream, own)

    @pytest.fixture
    async def rig(self, broker: NatsBroker) -> AsyncIterator[Rig]:
        publisher = NatsPublisher(f"{broker.url}/{broker.stream}")
        await publisher.open()
        topic = f"{broker.stream}.paid"
        yield Rig(
            publisher=publisher,
            topic=topic,
            unknown_topic=f"not-{topic}",
            too_large=LARGEST,
            wrong={what: NatsPublisher(url) for what, url in wrong_urls(broker).items()},
            can_be_full=True,
        )
        await publisher.close()
