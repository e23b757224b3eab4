"""End to end over every transport: nothing lost, effects exactly once, order per key, while relay and consumer are killed.

POSTROOM_TRIP_SEED chooses the kills; a failing trip says which one it was."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.round_trip import KEYS, Trip, trip
from tests.servers import rabbit_queues
from tests.servers.ports import free_port
from tests.servers.queues import fresh_queue, with_queue
from tests.servers.streams import fresh_stream
from tests.servers.topics import fresh_topic

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
NUMBER = 10_000
KILLS = 8
Road = Callable[[pytest.FixtureRequest], Iterator[tuple[str, str]]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _kafka(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = request.getfixturevalue("kafka_url")
    with fresh_topic(url) as topic:
        pace = "session.timeout.ms=6000&heartbeat.interval.ms=500"
        yield f"{url}/{topic}", f"{url}/{topic}?{pace}"


def _amqp(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = request.getfixturevalue("amqp_url")
    name = rabbit_queues.fresh_name()
    _at_once(rabbit_queues.make_exchange(url, name))
    try:
        yield f"{url}?exchange={name}", f"{url}?exchange={name}"
    finally:
        _at_once(rabbit_queues.remove(url, name, f"{name}.billing"))


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """In a loop of its own: the test's is running."""
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, work).result()


def _nats(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = request.getfixturevalue("nats_url")
    with fresh_stream(url) as stream:
        yield f"{url}/{stream}?subject={stream}.paid", f"{url}/{stream}?subject={stream}.paid&ack_wait=3s"


def _redis(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = f"{request.getfixturevalue('redis_url')}/{request.getfixturevalue('redis_stream')}"
    yield url, f"{url}?hold=3"


def _sqs(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = request.getfixturevalue("sqs_url")
    with fresh_queue(url) as queue:
        yield with_queue(url, queue), with_queue(url, queue)


def _http(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    url = f"http://127.0.0.1:{free_port()}/hooks"
    yield url, url


ROADS: dict[str, Road] = {"kafka": _kafka, "amqp": _amqp, "nats": _nats, "redis": _redis, "sqs": _sqs, "http": _http}
FROM_POSTGRES = {"kafka", "nats", "http"}
"""The outbox of these trips is on PostgreSQL, of the others on SQLite."""


@pytest.mark.parametrize("road", ROADS)
async def test_every_message_has_its_effect_once_and_in_order(
    road: str, request: pytest.FixtureRequest, postgres_database: str, tmp_path: Path
) -> None:
    seed = os.environ.get("POSTROOM_TRIP_SEED") or str(random.SystemRandom().randrange(10_000))
    print(f"POSTROOM_TRIP_SEED={seed}")
    number = NUMBER - NUMBER % KEYS
    outbox = postgres_database if road in FROM_POSTGRES else f"sqlite:///{tmp_path / 'shop.db'}"
    with contextmanager(ROADS[road])(request) as (to, source):
        going = Trip(outbox, to, source, postgres_database, tmp_path, number, random.Random(seed))
        with trip(going):
            await going.prepare()
            await going.go(kills=KILLS)
            await going.end()
        assert going.kills >= KILLS // 2, "the trip was over before it was hard"
        going.check()
        await going.check_outbox()
