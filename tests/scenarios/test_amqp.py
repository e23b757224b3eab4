"""A real relay carries to a real RabbitMQ that is killed under it, or is away when it starts: nothing is lost, every key's
first deliveries are in order, nothing is dead, and a broker that is away costs no message an attempt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scenarios.conftest import url_of
from tests.scenarios.posts import AWAY, CONCURRENCY, EACH, IN_FLIGHT, KEYS, Post, fill
from tests.servers.rabbit import Rabbit
from tests.servers.rabbit_queues import make_exchange

from postroom.errors import TransportUnavailable
from postroom.testing.waiting import until
from postroom.transports.amqp import AmqpConsumer

pytestmark = pytest.mark.timeout(240)  # two starts of a broker, and pauses of the relay, on whatever machine this is


@dataclass
class AmqpPost(Post):
    """Messages on their way to an exchange."""

    server: Rabbit

    def check(self, there: list[tuple[str, int]] | None = None) -> None:
        self.check_against(asyncio.run(received(self.to)) if there is None else there)
        assert "aiormq" not in self.said, "the client's own lines are not for the terminal"


async def received(url: str, enough: int | None = None) -> list[tuple[str, int]]:
    """All that the group is given, in its order; until there is no more, or *enough* different ones. All is acknowledged."""
    consumer, there, quiet = AmqpConsumer(url, group="billing"), list[tuple[str, int]](), 0
    while quiet < 4 and (enough is None or len(set(there)) < enough):
        try:
            deliveries = await consumer.receive(100, wait=timedelta(seconds=0.5))
        except TransportUnavailable:
            await asyncio.sleep(0.2)
            continue
        there += [(str(each.message.key), each.message.data) for each in deliveries]
        await consumer.ack(deliveries)
        quiet = 0 if deliveries or enough is not None else quiet + 1
    await consumer.close()
    return there


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store full of messages."""
    url = url_of(request.param, request, tmp_path)
    fill(url)
    return url


@pytest.fixture
def post(store: str, tmp_path: Path, amqp_server: Rabbit) -> AmqpPost:
    """Messages on their way to a broker that the test may kill."""
    made = AmqpPost(store, tmp_path, f"{amqp_server.url}?exchange=orders", amqp_server)

    async def prepare() -> None:
        await make_exchange(amqp_server.url, "orders")
        consumer = AmqpConsumer(made.to, group="billing")
        await consumer.open()
        await consumer.close()

    asyncio.run(prepare())
    amqp_server.write_names()
    return made


def test_a_broker_killed_under_load_and_started_again_loses_nothing(post: AmqpPost) -> None:
    with post.relay(concurrency=CONCURRENCY) as relay:
        until(lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
        post.server.kill()
        left = KEYS * EACH - post.published()
        assert left > IN_FLIGHT, "the kill came too late to hurt"
        until(lambda: AWAY in post.said, "the relay sees that the broker is gone")
        post.server.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    post.check_attempts()


def test_a_receiver_at_work_while_the_broker_is_killed_receives_everything_in_order(post: AmqpPost) -> None:
    async def receive_all() -> list[tuple[str, int]]:
        async with asyncio.timeout(150):
            receiving = asyncio.create_task(received(post.to, KEYS * EACH))
            with post.relay(concurrency=CONCURRENCY) as relay:
                await asyncio.to_thread(until, lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
                await asyncio.to_thread(post.server.kill)
                await asyncio.sleep(1)
                await asyncio.to_thread(post.server.start_again)
                assert await asyncio.to_thread(relay.wait, 100) == 0, post.said
            return await receiving

    post.check(asyncio.run(receive_all()))


def test_a_broker_that_is_away_at_the_start_is_waited_for(post: AmqpPost) -> None:
    post.server.kill()
    with post.relay() as relay:
        until(lambda: AWAY in post.said, "the relay sees that the broker is not there")
        assert post.published() == 0
        post.server.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    assert {record.attempts for record in post.records()} == {1}, "an attempt was spent on a broker that was away"


def test_a_typo_in_the_exchange_is_told_at_the_start_in_one_sentence(store: str, tmp_path: Path, amqp_url: str) -> None:
    post = Post(store, tmp_path, f"{amqp_url}?exchange=ordrs")
    with post.relay() as relay:
        assert relay.wait(60) == 1, post.said
    assert "ordrs cannot be written to" in post.said
    assert "Traceback" not in post.said
    assert "the-right-password" not in post.said
    assert {(record.status, record.attempts) for record in post.records()} == {("pending", 0)}
