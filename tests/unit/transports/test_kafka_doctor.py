"""The settings of a Kafka that weaken the promise are named, each with its remedy."""

from __future__ import annotations

import pytest
from tests.servers.ports import free_port
from tests.servers.topics import fresh_topic

from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.kafka.doctor import Topic, weak_in_broker, weak_in_topic, weaknesses

SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
}


def test_nothing_is_said_of_a_safe_topic() -> None:
    assert weak_in_topic(Topic("orders", 3, SAFE)) == []
    assert weak_in_topic(Topic("orders", 5, SAFE | {"retention.ms": "-1"})) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"min.insync.replicas": "1"}, "min.insync.replicas=1"),
        ({"unclean.leader.election.enable": "true"}, "set it to false"),
        ({"cleanup.policy": "compact,delete"}, "is compacted"),
        ({"retention.ms": "86400000"}, "after 1 day, 0:00:00"),
        ({"retention.ms": "0"}, "after 0:00:00"),
        ({"retention.bytes": "1000"}, "above 1000 bytes"),
    ],
)
def test_each_weak_setting_of_a_topic_is_named_alone(setting: dict[str, str], said: str) -> None:
    (sentence,) = weak_in_topic(Topic("orders", 3, SAFE | setting))
    assert said in sentence
    assert sentence.startswith("orders ")
    assert sentence.endswith(".")


def test_too_few_replicas_are_counted() -> None:
    (sentence,) = weak_in_topic(Topic("orders", 2, SAFE))
    assert "2 of 3 replicas" in sentence


def test_a_broker_that_makes_topics_or_forgets_groups_is_named() -> None:
    assert weak_in_broker({"auto.create.topics.enable": "false", "offsets.retention.minutes": "10080"}) == []
    assert "misspelt" in weak_in_broker({"auto.create.topics.enable": "true"})[0]
    assert "after 60 minutes" in weak_in_broker({"offsets.retention.minutes": "60"})[0]


async def test_a_real_broker_is_asked(kafka_url: str) -> None:
    weak = {"retention_ms": "60000", "unclean_leader_election_enable": "true", "cleanup_policy": "compact"}
    safe = {"retention_ms": "-1", "min_insync_replicas": "2", "cleanup_policy": "delete"}
    with fresh_topic(kafka_url, 3, **weak) as one, fresh_topic(kafka_url, 3, **safe) as other:
        found = await weaknesses(f"{kafka_url}/{one},{other}")
        told = [sentence.partition(" ")[2] for sentence in found if sentence.startswith(one)]
        assert [sentence.partition(":")[0] for sentence in told] == [
            "has 1 of 3 replicas",
            "has min.insync.replicas=1",
            "has unclean.leader.election.enable=true",
            "is compacted",
            "deletes messages after 0",
        ]
        (sentence,) = [sentence for sentence in found if sentence.startswith(other)]
        assert "has 1 of 3 replicas" in sentence
    assert await weaknesses(f"{kafka_url}/ordrs") == [
        "There is no topic 'ordrs': create it, or correct the URL.",
        *await weaknesses(kafka_url),
    ]


async def test_a_broker_that_is_away_or_a_url_that_is_none_is_told() -> None:
    with pytest.raises(TransportUnavailable, match="cannot be examined"):
        await weaknesses(f"kafka://127.0.0.1:{free_port()}/orders")
    with pytest.raises(ConfigError):
        await weaknesses("kafka://")
