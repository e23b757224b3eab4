"""Deliveries to Redis Streams keep the contract of a transport, with a real server on the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.servers.redis_streams import messages_in
from tests.servers.valkeyd import LARGEST, Valkey

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.transports.redis_streams import RedisPublisher


class RedisServer:
    """A stream of the run's server; a test that wants it to go away has one of its own behind it."""

    def __init__(self, url: str, stream: str, own: Valkey | None) -> None:
        self.url, self.stream, self.own = url, stream, own

    async def received(self) -> Sequence[Message]:
        return await asyncio.to_thread(messages_in, self.url, self.stream)

    async def go_away(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.kill)

    async def come_back(self) -> None:
        assert self.own is not None
        await asyncio.to_thread(self.own.start_again)

    async def fill(self) -> None:
        await asyncio.to_thread(set_maxmemory, self.url, 1)

    async def make_room(self) -> None:
        await asyncio.to_thread(set_maxmemory, self.url, 0)


def wrong_urls(url: str) -> dict[str, str]:
    return {
        "password": f"{url.replace('://', '://nobody:wrong@')}/orders",
        "host": "redis://no-such-host.invalid:6379/orders",
        "stream": f"{url}/not-there?create=off",
    }


class TestRedisTransport(PublisherContract):
    settings = ""

    @pytest.fixture
    def broker(self, request: pytest.FixtureRequest, redis_stream: str) -> RedisServer:
        needs_own = any(word in request.function.__name__ for word in ("away", "full"))
        own: Valkey | None = request.getfixturevalue("redis_server") if needs_own else None
        return RedisServer(own.url if own else request.getfixturevalue("redis_url"), redis_stream, own)

    @pytest.fixture
    async def rig(self, broker: RedisServer) -> AsyncIterator[Rig]:
        publisher = RedisPublisher(broker.url + self.settings)
        await publisher.open()
        yield Rig(
            publisher=publisher,
            topic=broker.stream,
            too_large=LARGEST + 1,
            wrong={what: RedisPublisher(url) for what, url in wrong_urls(broker.url).items()},
            can_be_full=True,
        )
        await publisher.close()


class TestRedisTransportThatMakesNoStream(TestRedisTransport):
    settings = "?create=off&waitaof=1"

    @pytest.fixture
    async def rig(self, broker: RedisServer) -> AsyncIterator[Rig]:
        await asyncio.to_thread(make_stream, broker.url, broker.stream)
        publisher = RedisPublisher(broker.url + self.settings)
        await publisher.open()
        unknown = f"{broker.stream}:not"
        yield Rig(
            publisher=publisher, topic=broker.stream, unknown_topic=unknown, too_large=LARGEST + 1, can_be_full=True
        )
        await publisher.close()


def set_maxmemory(url: str, size: int) -> None:
    from tests.servers.redis_streams import client_of

    with client_of(url) as client:
        client.config_set("maxmemory", size)


def make_stream(url: str, stream: str) -> None:
    """An empty one."""
    from tests.servers.redis_streams import client_of

    with client_of(url) as client:
        client.xgroup_create(stream, "nobody", mkstream=True)
