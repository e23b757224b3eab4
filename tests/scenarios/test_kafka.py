"""A real relay carries to a real Kafka that is killed under it, or is away when it starts: nothing is lost, every key's first
deliveries are in order, nothing is dead, and a broker that is away costs no message an attempt."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.servers.broker import Broker
from tests.servers.topics import everything_in, fresh_topic
from tests.unit.transports.records import message_in

from postroom.message import Message
from postroom.store import Query, Record
from postroom.stores import open_store

KEYS, EACH = 40, 60
BATCH, CONCURRENCY = 20, 4
IN_FLIGHT = BATCH * CONCURRENCY
POSTROOM = [sys.executable, "-m", "postroom"]
PACE = ["--batch", str(BATCH), "--poll", "50ms", "--backoff", "0.2"]
TIMES = ["--lease", "30s", "--send-timeout", "4s"]
AWAY = "the broker is away"

pytestmark = pytest.mark.timeout(240)  # two starts of a broker, and pauses of the relay, on whatever machine this is


@dataclass
class Post:
    """A store full of messages, and the topic that they go to."""

    store: str
    broker: Broker
    topic: str
    folder: Path

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    @contextmanager
    def relay(self, topic: str | None = None, concurrency: int = 1) -> Iterator[subprocess.Popen[bytes]]:
        pace = [*PACE, "--concurrency", str(concurrency)]
        to = f"{self.broker.url}/{topic or self.topic}"
        with (self.folder / "said").open("wb") as said:
            relay = subprocess.Popen(
                [*POSTROOM, "relay", "--store", self.store, "--to", to, "--drain", *pace, *TIMES],
                cwd=self.folder,
                env=dict(os.environ),
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        try:
            yield relay
        finally:
            relay.kill()
            relay.wait()

    def records(self) -> list[Record]:
        async def find() -> list[Record]:
            async with open_store(self.store) as store:
                return list(await store.find(Query()))

        return asyncio.run(find())

    def published(self) -> int:
        async def count() -> int:
            async with open_store(self.store) as store:
                return (await store.counts()).by_status.get("published", 0)

        return asyncio.run(count())

    def check(self) -> None:
        """What stands in the topic against what was put, and what the store says of it."""
        there = [message_in(record) for record in everything_in(self.broker.url, self.topic)]
        check_deliveries([(str(message.key), message.data) for message in there])
        assert {record.status for record in self.records()} == {"published"}


def check_deliveries(there: list[tuple[str, int]]) -> None:
    put = {(f"k{key}", number) for key in range(KEYS) for number in range(EACH)}
    assert set(there) - put == set(), "a ghost was delivered"
    assert put - set(there) == set(), "a message was lost"
    for key in range(KEYS):
        first = list(dict.fromkeys(number for name, number in there if name == f"k{key}"))
        assert first == list(range(EACH)), f"the order of k{key} is broken: {first}"


def eventually(true: Callable[[], bool], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not happen in time: {what}"
        time.sleep(0.02)


@pytest.fixture
def post(database: str, tmp_path: Path, kafka_broker: Broker) -> Iterator[Post]:
    async def fill() -> None:
        async with open_store(database) as store:
            await store.migrate()
            for number in range(EACH):
                await store.put([Message("order.paid", key=f"k{key}", data=number) for key in range(KEYS)])

    asyncio.run(fill())
    with fresh_topic(kafka_broker.url, partitions=4) as topic:
        yield Post(database, kafka_broker, topic, tmp_path)


def test_a_broker_killed_under_load_and_started_again_loses_nothing(post: Post) -> None:
    with post.relay(concurrency=CONCURRENCY) as relay:
        eventually(lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
        post.broker.kill()
        left = KEYS * EACH - post.published()
        assert left > IN_FLIGHT, "the kill came too late to hurt"
        eventually(lambda: AWAY in post.said, "the relay sees that the broker is gone")
        post.broker.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    again = [record for record in post.records() if record.attempts > 1]
    assert len(again) <= IN_FLIGHT, "more attempts were spent than messages were in flight"
    assert "Traceback" not in post.said
    assert "rdkafka" not in post.said, "librdkafka's own lines are not for the terminal"


def test_a_broker_that_is_away_at_the_start_is_waited_for(post: Post) -> None:
    post.broker.kill()
    with post.relay() as relay:
        eventually(lambda: AWAY in post.said, "the relay sees that the broker is not there")
        assert post.published() == 0
        post.broker.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    assert {record.attempts for record in post.records()} == {1}, "an attempt was spent on a broker that was away"


def test_a_typo_in_the_topic_is_told_at_the_start_in_one_sentence(post: Post) -> None:
    with post.relay(topic="ordrs") as relay:
        assert relay.wait(60) == 2, post.said
    assert "ordrs cannot be written to" in post.said
    assert "Traceback" not in post.said
    assert {(record.status, record.attempts) for record in post.records()} == {("pending", 0)}


IN_ORDER = [(f"k{key}", number) for number in range(EACH) for key in range(KEYS)]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (IN_ORDER[:-1], "a message was lost"),
        ([*IN_ORDER, ("k0", EACH)], "a ghost was delivered"),
        ([IN_ORDER[KEYS], *IN_ORDER[:KEYS], *IN_ORDER[KEYS + 1 :]], "the order of k0 is broken"),
    ],
    ids=["loss", "ghost", "inversion"],
)
def test_the_checker_catches_what_it_is_there_for(there: list[tuple[str, int]], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_deliveries(there)
    check_deliveries([*IN_ORDER, IN_ORDER[0]])
