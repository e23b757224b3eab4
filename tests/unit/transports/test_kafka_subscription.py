"""A Kafka URL says what is received; what would lose or skip messages is refused with a sentence."""

from __future__ import annotations

import pytest

from postroom.contracts.transport import ConsumerOptions
from postroom.errors import ConfigError
from postroom.transports import open_consumer
from postroom.transports.kafka.subscription import OWN, read


def test_a_url_names_brokers_topics_and_settings() -> None:
    found = read("kafka://one:9092,two:9093/orders,payments?session.timeout.ms=6000&client.id=shop", "billing")
    assert found.topics == ("orders", "payments")
    assert found.consumer["bootstrap.servers"] == "one:9092,two:9093"
    assert found.consumer["session.timeout.ms"] == "6000"
    assert found.consumer["group.id"] == "billing"
    assert found.consumer.items() >= OWN.items()


def test_one_url_serves_for_sending_and_receiving() -> None:
    assert read("kafka://one/orders?compression.type=lz4&partitioner=murmur2", "billing").topics == ("orders",)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("enable.auto.commit=true", "Postroom commits what was handled"),
        ("auto.commit.enable=true", "Postroom commits what was handled"),
        ("enable.auto.offset.store=true", "Postroom commits what was handled"),
        ("auto.offset.reset=latest", "could be skipped"),
        ("isolation.level=read_uncommitted", "took back"),
        ("group.id=x", "name the group in the options"),
        ("group.instance.id=x", "keep its partitions"),
        ("group.protocol=consumer", "rest on the protocol"),
        ("partition.assignment.strategy=range", "rest on the protocol"),
        ("allow.auto.create.topics=true", "misspelt"),
        ("bootstrap.servers=evil:9092", "written before the topic"),
        ("ssl.key.pem=secret", "give the file's name"),
        ("on_commit=print", "is a function, not a setting"),
        ("on_assign=print", "is a function, not a setting"),
        ("session.timeout=5", "No such configuration property"),
        ("session.timeout.ms=soon", "Invalid value"),
        ("session.timeout.ms=900000", "max.poll.interval.ms"),
    ],
)
def test_an_unsafe_or_unknown_setting_is_refused_in_one_sentence(
    setting: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read(f"kafka://one/orders?{setting}", "billing")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert capfd.readouterr().err == "", "librdkafka's own lines are not for the terminal"


@pytest.mark.parametrize("topics", ["", ",", "orders,^pay.*", "a b", "x" * 250])
def test_a_url_without_a_plain_topic_is_refused(topics: str) -> None:
    with pytest.raises(ConfigError, match="names no topic to receive from"):
        read(f"kafka://one/{topics}", "billing")


def test_a_group_and_a_prefetch_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="The group of a Kafka receiver is empty"):
        read("kafka://one/orders", "")
    with pytest.raises(ConfigError, match="prefetch is 0"):
        open_consumer("kafka://one/orders", ConsumerOptions(prefetch=0))


def test_a_password_is_never_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read("kafka://one/a b?sasl.password=s3cret&sasl.username=app", "billing")
    assert "s3cret" not in str(caught.value)
