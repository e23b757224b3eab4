"""A real relay carries to a real Kafka that is killed under it, or is away when it starts: nothing is lost, every key's first
deliveries are in order, nothing is dead, and a broker that is away costs no message an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.posts import AWAY, CONCURRENCY, EACH, IN_FLIGHT, KEYS, Post, check_deliveries, fill
from tests.servers.broker import Broker
from tests.servers.topics import everything_in, fresh_topic
from tests.unit.transports.records import message_in

from postroom.testing.waiting import until

pytestmark = pytest.mark.timeout(240)  # two starts of a broker, and pauses of the relay, on whatever machine this is


@dataclass
class KafkaPost(Post):
    """Messages on their way to a topic."""

    broker: Broker
    topic: str

    def check(self) -> None:
        there = [message_in(record) for record in everything_in(self.broker.url, self.topic)]
        self.check_against([(str(message.key), message.data) for message in there])


@pytest.fixture
def post(database: str, tmp_path: Path, kafka_broker: Broker) -> Iterator[KafkaPost]:
    fill(database)
    with fresh_topic(kafka_broker.url, partitions=4) as topic:
        yield KafkaPost(database, tmp_path, f"{kafka_broker.url}/{topic}", kafka_broker, topic)


@pytest.mark.requirement("C1")
def test_a_broker_killed_under_load_and_started_again_loses_nothing(post: KafkaPost) -> None:
    with post.relay(concurrency=CONCURRENCY) as relay:
        until(lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
        post.broker.kill()
        left = KEYS * EACH - post.published()
        assert left > IN_FLIGHT, "the kill came too late to hurt"
        until(lambda: AWAY in post.said, "the relay sees that the broker is gone")
        post.broker.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    post.check_attempts()
    assert "rdkafka" not in post.said, "librdkafka's own lines are not for the terminal"


@pytest.mark.requirement("C1")
def test_a_broker_that_is_away_at_the_start_is_waited_for(post: KafkaPost) -> None:
    post.broker.kill()
    with post.relay() as relay:
        until(lambda: AWAY in post.said, "the relay sees that the broker is not there")
        assert post.published() == 0
        post.broker.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    assert {record.attempts for record in post.records()} == {1}, "an attempt was spent on a broker that was away"


def test_a_typo_in_the_topic_is_told_at_the_start_in_one_sentence(post: KafkaPost) -> None:
    with post.relay(to=f"{post.broker.url}/ordrs") as relay:
        assert relay.wait(60) == 1, post.said
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
