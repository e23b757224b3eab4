"""Real receivers, each a process, read from a real Kafka: it is killed under them, and so are they. Nothing is lost, every
key's first deliveries are in order, and only what was in hand comes twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scenarios.receiver import AT_ONCE
from tests.servers.broker import Broker
from tests.servers.topics import fresh_topic
from tests.unit.transports.workers import check

from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.testing.waiting import until
from postroom.transports.kafka import KafkaPublisher

KEYS, EACH = 30, 80
ALL = KEYS * EACH
PACE = "session.timeout.ms=6000&heartbeat.interval.ms=500"
TWICE = 2 * (500 + AT_ONCE)
"""What two receivers can have done since they last committed, less than a second ago, and what they had in hand."""

LEAVING = 60
"""More than twice as many seconds as a receiver may take: ten to join, where it was about to, and fifteen to leave."""

pytestmark = pytest.mark.timeout(300)


@dataclass
class Post:
    """A topic full of messages, and those who receive from it."""

    broker: Broker
    topic: str
    log: Path
    receivers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def receiver(self) -> subprocess.Popen[bytes]:
        url = f"{self.broker.url}/{self.topic}?{PACE}"
        with (self.log.parent / f"said-{len(self.receivers)}").open("wb") as said:
            started = subprocess.Popen(
                [sys.executable, "-m", "tests.scenarios.receiver", url, "billing", str(self.log)],
                cwd=Path(__file__).parents[2],
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        self.receivers.append(started)
        return started

    def handled(self) -> list[tuple[str, int]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(key, int(number)) for key, number in map(str.split, lines)]

    def stop(self) -> None:
        for receiver in self.receivers:
            receiver.terminate()
        for receiver in self.receivers:
            try:
                receiver.wait(LEAVING)
            except subprocess.TimeoutExpired:
                receiver.send_signal(signal.SIGUSR1)  # it says where it stands
                time.sleep(1)
                raise AssertionError(f"a receiver does not end:\n{self.said()}") from None

    def kill(self) -> None:
        for receiver in self.receivers:
            receiver.kill()
            receiver.wait()

    def said(self) -> str:
        return "".join(path.read_text() for path in sorted(self.log.parent.glob("said-*")))


@pytest.fixture
def post(tmp_path: Path, kafka_broker: Broker) -> Iterator[Post]:
    async def fill(topic: str) -> None:
        publisher = KafkaPublisher(f"{kafka_broker.url}/{topic}")
        await publisher.open()
        batch = [Envelope(Message("n", key=f"k{key}", data=number)) for number in range(EACH) for key in range(KEYS)]
        outcomes = await publisher.publish(batch, timeout=timedelta(seconds=60))
        assert all(isinstance(outcome, Sent) for outcome in outcomes)
        await publisher.close()

    with fresh_topic(kafka_broker.url, partitions=6) as topic, ExitStack() as ending:
        asyncio.run(fill(topic))
        post = Post(kafka_broker, topic, tmp_path / "handled")
        ending.callback(post.kill)
        yield post


def test_a_broker_killed_under_its_receivers_loses_nothing(post: Post) -> None:
    post.receiver()
    post.receiver()
    until(lambda: len(post.handled()) > ALL // 8, "they are at work")
    post.broker.kill()
    assert len(set(post.handled())) < ALL - 100, "the kill came too late to hurt"
    time.sleep(2)
    before = len(post.handled())
    time.sleep(1)
    assert len(post.handled()) == before, "what is handled while the broker is away may come again"
    post.broker.start_again()
    until(lambda: len(set(post.handled())) == ALL, "all was handled")
    post.stop()
    check(post.handled(), KEYS, EACH, twice_at_most=TWICE)
    assert post.said() == ""


def test_receivers_killed_one_after_the_other_lose_nothing(post: Post) -> None:
    first, _ = post.receiver(), post.receiver()
    until(lambda: len(post.handled()) > ALL // 8, "they are at work")
    first.kill()
    until(lambda: len(set(post.handled())) > ALL // 4, "the other goes on")
    post.receiver()
    second = post.receivers[1]
    second.kill()
    until(lambda: len(set(post.handled())) == ALL, "all was handled")
    post.stop()
    check(post.handled(), KEYS, EACH, twice_at_most=TWICE)
    assert post.said() == ""
