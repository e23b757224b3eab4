"""A Kafka URL says what librdkafka is told; what would make a delivery unsafe is refused with a sentence."""

from __future__ import annotations

import pytest

from postroom.errors import ConfigError
from postroom.transports import open_publisher
from postroom.transports.kafka import KafkaPublisher
from postroom.transports.kafka.url import OWN, read


def test_a_url_names_brokers_topic_and_settings() -> None:
    settings = read("kafka://one:9092,two:9093/orders?compression.type=lz4&client.id=shop%20relay")
    assert settings.topic == "orders"
    assert settings.producer["bootstrap.servers"] == "one:9092,two:9093"
    assert settings.producer["compression.type"] == "lz4"
    assert settings.producer["client.id"] == "shop relay"


@pytest.mark.parametrize("url", ["kafka://one:9092", "kafka://one:9092/", "kafka://one"])
def test_a_url_may_name_no_topic(url: str) -> None:
    assert read(url).topic is None


def test_a_delivery_is_confirmed_by_all_replicas_and_keeps_its_place_whatever_the_url_says() -> None:
    producer = read("kafka://one/orders?compression.type=lz4").producer
    assert producer["acks"] == "all"
    assert producer["enable.idempotence"] is True
    assert producer.items() >= OWN.items()


def test_the_same_key_lands_where_a_java_client_would_put_it_unless_the_url_says_otherwise() -> None:
    assert read("kafka://one/orders").producer["partitioner"] == "murmur2_random"
    assert read("kafka://one/orders?partitioner=consistent_random").producer["partitioner"] == "consistent_random"


def test_a_plus_in_a_password_stays_a_plus() -> None:
    secure = "security.protocol=SASL_PLAINTEXT&sasl.mechanisms=PLAIN&sasl.username=app"
    assert read(f"kafka://one/orders?{secure}&sasl.password=a+b%26c").producer["sasl.password"] == "a+b&c"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("acks=1", "not mean that the message is safe"),
        ("request.required.acks=0", "not mean that the message is safe"),
        ("enable.idempotence=false", "the order of a key rests on it"),
        ("enable.gapless.guarantee=false", "the order of a key rests on it"),
        ("max.in.flight=100", "the order of a key rests on it"),
        ("max.in.flight.requests.per.connection=6", "the order of a key rests on it"),
        ("retries=0", "the order of a key rests on it"),
        ("message.timeout.ms=1", "--send-timeout"),
        ("delivery.timeout.ms=1", "--send-timeout"),
        ("linger.ms=1000", "sent at once"),
        ("bootstrap.servers=evil:9092", "written before the topic"),
        ("transactional.id=x", "Postroom needs to set it itself"),
        ("plugin.library.paths=/tmp/x.so", "Postroom needs to set it itself"),
        ("ssl.key.pem=secret", "give the file's name"),
        ("error_cb=print", "is a function, not a setting"),
        ("logger=x", "is a function, not a setting"),
        ("linger=5", "No such configuration property"),
        ("batch.size=lots", "Invalid value"),
        ("sasl.mechanisms", "has no value"),
        ("client.id=a&client.id=b", "twice"),
        ("security.protocol=ssl&ssl.ca.location=/no/such/file", "ssl.ca.location failed"),
    ],
)
def test_an_unsafe_or_unknown_setting_is_refused_in_one_sentence(
    setting: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        KafkaPublisher(f"kafka://one/orders?{setting}")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert capfd.readouterr().err == "", "librdkafka's own lines are not for the terminal"


@pytest.mark.parametrize("url", ["kafka://", "kafka:///orders", "kafka://one/orders/eu", "kafka://one/orders#x"])
def test_a_url_without_brokers_or_with_an_odd_topic_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="kafka://broker:9092/orders"):
        read(url)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://app:hunter2@one/orders",
        "kafka://one/orders?sasl.password=hunter2&acks=1",
        "kafka://one/orders?sasl.password=hunter2&sasl.mechanisms",
    ],
)
def test_a_password_is_not_in_the_sentence(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(url)
    assert "hunter2" not in str(caught.value)


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="source is empty"):
        KafkaPublisher("kafka://one/orders", source="")


def test_a_kafka_url_opens_a_kafka_transport() -> None:
    publisher = open_publisher("kafka://one:9092/orders")
    assert isinstance(publisher, KafkaPublisher)
    assert publisher.capabilities.name == "kafka"
