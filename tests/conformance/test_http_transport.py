"""Deliveries by HTTP keep the contract of a transport, with a real server on the other side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web
from tests.unit.transports.receiver import Received, Receiver

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.http import HttpPublisher

LARGEST = 1000


async def take_what_is_small(received: Received) -> web.StreamResponse:
    return web.Response(status=413 if len(received.body) > LARGEST else 204)


class HttpBroker:
    """The receiver, seen from the test."""

    def __init__(self) -> None:
        self.receiver = Receiver(take_what_is_small)

    async def received(self) -> Sequence[Message]:
        return [message for message in self.receiver.messages() if len(message.body or b"") <= LARGEST]

    async def go_away(self) -> None:
        await self.receiver.stop()

    async def come_back(self) -> None:
        await self.receiver.start()


class TestHttpTransport(PublisherContract):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[HttpBroker]:
        broker = HttpBroker()
        await broker.come_back()
        yield broker
        await broker.go_away()

    @pytest.fixture
    async def rig(self, broker: HttpBroker) -> AsyncIterator[Rig]:
        publisher = HttpPublisher(broker.receiver.url)
        await publisher.open()
        yield Rig(publisher=publisher, topic="orders", too_large=LARGEST + 1)
        await publisher.close()
