"""End to end over every transport: nothing lost, effects exactly once, order per key, while relay and consumer are killed.

The seed chooses the kills; a trip says which one it was. It is a sample; `make proof` sends ten thousand messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.proof.lengths import OUTAGE_MESSAGES, OUTAGES, SEED, TRIP_KILLS, TRIP_MESSAGES
from tests.scenarios.round_trip import KEYS, Trip, trip
from tests.servers import rabbit_queues
from tests.servers.ports import free_port
from tests.servers.queues import fresh_queue, with_queue
from tests.servers.streams import fresh_stream
from tests.servers.topics import fresh_topic

from postroom.transports.amqp import AmqpConsumer

pytestmark = pytest.mark.timeout(900)
BATCH = 50
"""What a killed relay had in flight goes alone afterwards, one by one: with batches of 500 that would be most of the trip."""
Road = Callable[[pytest.FixtureRequest], Iterator[tuple[str, str]]]


def _server(request: pytest.FixtureRequest, name: str) -> str:
    """The URL of the run's server; of the test's own, where the test kills it."""
    if "killed" in request.function.__name__:
        return str(request.getfixturevalue(KILLED[name]).url)
    return str(request.getfixturevalue(f"{name}_url"))


def _kafka(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = _server(request, "kafka")
    with fresh_topic(url) as topic:
        pace = "session.timeout.ms=6000&heartbeat.interval.ms=500"
        yield f"{url}/{topic}", f"{url}/{topic}?{pace}"


def _amqp(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = _server(request, "amqp")
    name = rabbit_queues.fresh_name()
    road = f"{url}?exchange={name}"

    async def make_queue() -> None:
        await rabbit_queues.make_exchange(url, name)
        consumer = AmqpConsumer(road, group="billing")
        await consumer.open()
        await consumer.close()

    _at_once(make_queue())
    if "killed" in request.function.__name__:
        request.getfixturevalue(KILLED["amqp"]).write_names()
    try:
        yield road, road
    finally:
        _at_once(rabbit_queues.remove(url, name, f"{name}.billing"))


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """In a loop of its own: the test's is running."""
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, work).result()


def _nats(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = _server(request, "nats")
    with fresh_stream(url) as stream:
        yield f"{url}/{stream}?subject={stream}.paid", f"{url}/{stream}?subject={stream}.paid&ack_wait=3s"


def _redis(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = f"{_server(request, 'redis')}/{request.getfixturevalue('redis_stream')}"
    yield url, f"{url}?hold=3"


def _sqs(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = request.getfixturevalue("sqs_url")
    # moto answers slowly on a busy machine: what is in hand must outlast that.
    with fresh_queue(url, {"VisibilityTimeout": 12}) as queue:
        yield with_queue(url, queue), with_queue(url, queue)


def _http(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = f"http://127.0.0.1:{free_port()}/hooks"
    yield url, url


KILLED: dict[str, str] = {
    "kafka": "kafka_broker",
    "amqp": "amqp_server",
    "nats": "nats_server",
    "redis": "redis_server",
}
"""Brokers of a test's own. moto keeps its queues in memory, so that a killed one has nothing left to lose."""
ROADS: dict[str, Road] = {"kafka": _kafka, "amqp": _amqp, "nats": _nats, "redis": _redis, "sqs": _sqs, "http": _http}
FROM_POSTGRES = {"kafka", "nats", "http"}
"""The outbox of these trips is on PostgreSQL, of the others on SQLite."""


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.requirement("A3", "C10", "D2")
async def test_every_message_has_its_effect_once_and_in_order(
    road: str, request: pytest.FixtureRequest, postgres_database: str, tmp_path: Path
) -> None:
    print(f"POSTROOM_PROOF_SEED={SEED}")
    number = TRIP_MESSAGES - TRIP_MESSAGES % KEYS
    outbox = postgres_database if road in FROM_POSTGRES else f"sqlite:///{tmp_path / 'shop.db'}"
    with contextmanager(ROADS[road])(request) as (to, source):
        going = Trip(outbox, to, source, postgres_database, tmp_path, number, random.Random(SEED), BATCH)
        with trip(going):
            await going.prepare(number // 2)
            await going.go(kills=TRIP_KILLS)
            await going.end()
        print(f"{going.kills} kills; {going.hit} messages in flight at those of the relay")
        assert going.kills >= TRIP_KILLS // 2, "the trip was over before it was hard"
        going.check()
        await going.check_outbox()


@pytest.mark.parametrize("road", KILLED)
@pytest.mark.requirement("C1")
async def test_a_broker_that_is_killed_under_load_loses_nothing_and_every_effect_happens_once(
    road: str, request: pytest.FixtureRequest, postgres_database: str, tmp_path: Path
) -> None:
    broker = request.getfixturevalue(KILLED[road])
    number = OUTAGE_MESSAGES - OUTAGE_MESSAGES % KEYS
    with contextmanager(ROADS[road])(request) as (to, source):
        going = Trip(postgres_database, to, source, postgres_database, tmp_path, number, random.Random(SEED))
        with trip(going):
            await going.prepare(number)
            await going.go(kills=OUTAGES, broker=broker)
            await going.end()
        assert going.kills >= 1
        going.check()
        await going.check_outbox()
