"""A broker without room is waited for: the backlog outlives far more refusals than a message has tries, and goes out when
there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from nats.js.api import DiscardPolicy
from tests.servers.rabbit_queues import channel_to, fresh_name, make_queue, remove
from tests.servers.streams import at_once, everything_in, fresh_stream

from postroom.contracts.ops import Query
from postroom.contracts.transport import Publisher
from postroom.events import Event, Listeners, RoutePaused, RouteResumed
from postroom.message import Message
from postroom.relay import Relay, breaker, verdict
from postroom.relay.routes import Route
from postroom.stores.memory import MemoryStore
from postroom.transports import open_publisher

BACKLOG = 12
REFUSALS = 5 * Route(to=open_publisher("null://")).retry.max_attempts
"""Five times as many as the default settings give a message before it is dead."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute between two tries, as it is in earnest, would make this a test of an hour."""
    monkeypatch.setattr(breaker, "FIRST_PAUSE_SECONDS", 0.005)
    monkeypatch.setattr(breaker, "LONGEST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(verdict, "PAUSE", timedelta(milliseconds=5))


async def outlive(publisher: Publisher, code: str, make_room: Callable[[], Awaitable[object]]) -> None:
    """Carry a backlog to a broker that is full; after many refusals there is room, and all of it must go."""
    store = MemoryStore()
    await store.outbox.put([Message("order.paid", key=f"k{number % 4}", data=number) for number in range(BACKLOG)])
    refused, heard = asyncio.Event(), list[Event]()

    def listen(event: Event) -> None:
        heard.append(event)
        if sum(isinstance(each, RoutePaused) for each in heard) >= REFUSALS:
            refused.set()

    relay = Relay(store, [Route(to=publisher)], listeners=Listeners(listen))
    draining = asyncio.create_task(relay.drain())
    async with asyncio.timeout(20):
        await refused.wait()
        waiting = await store.ops.find(Query())
        assert {message.attempts for message in waiting} == {0}, "a full broker is no message's fault"
        assert {each.code for each in heard if isinstance(each, RoutePaused)} == {code}
        await make_room()
        drained = await draining
    assert (drained.dead, drained.parked) == (0, 0)
    assert any(isinstance(each, RouteResumed) for each in heard)


async def test_a_full_nats_stream_is_waited_for_and_the_whole_backlog_arrives(nats_url: str) -> None:
    with fresh_stream(nats_url, discard=DiscardPolicy.NEW, max_msgs=BACKLOG) as stream:
        for _ in range(BACKLOG):
            await asyncio.to_thread(at_once, nats_url, lambda js: js.publish(f"{stream}.other", b""))

        async def purge() -> None:
            await asyncio.to_thread(at_once, nats_url, lambda js: js.purge_stream(stream))

        await outlive(open_publisher(f"{nats_url}/{stream}?subject={stream}.paid"), "STREAM_FULL", purge)
        assert len(await asyncio.to_thread(everything_in, nats_url, stream)) == BACKLOG


async def test_a_full_rabbitmq_queue_is_waited_for_and_the_whole_backlog_arrives(amqp_url: str) -> None:
    queue = fresh_name()
    arguments = {"x-queue-type": "classic", "x-max-length": BACKLOG, "x-overflow": "reject-publish"}
    await make_queue(amqp_url, queue, arguments)
    async with channel_to(amqp_url) as channel:
        for _ in range(BACKLOG):
            await channel.basic_publish(b"", routing_key=queue)

        async def purge() -> None:
            await channel.queue_purge(queue)

        await outlive(open_publisher(f"{amqp_url}?queue={queue}"), "NACKED", purge)
        found = await channel.queue_declare(queue, passive=True)
    assert found.message_count == BACKLOG
    await remove(amqp_url, queue)
