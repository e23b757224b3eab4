"""Deliveries to a real Kafka: topics, refusals, time-outs, passwords; and whatever happens, no key out of order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.servers.broker import LOCKED, LOCKED_PASSWORD, Broker
from tests.servers.ports import free_port
from tests.servers.topics import everything_in, fresh_topic, servers_of
from tests.unit.transports.records import message_in

from postroom.contracts.transport import KEY_STOPPED, Envelope, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.message import Message
from postroom.transports.kafka import KafkaPublisher, connection
from postroom.transports.kafka import url as settings

LONG = timedelta(seconds=20)
SHORT = timedelta(seconds=2)
SMALL_TOPIC = 2000
SASL = "security.protocol=SASL_PLAINTEXT&sasl.mechanisms=PLAIN"


@asynccontextmanager
async def publishing(url: str) -> AsyncIterator[KafkaPublisher]:
    publisher = KafkaPublisher(url)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


def message(data: object, key: str | None = None, **more: object) -> Message:
    return Message("order.paid", key=key, data=data, **more)  # type: ignore[arg-type]  # whatever the test is about


async def publish(
    publisher: KafkaPublisher, *messages: Message, timeout: timedelta = LONG, topic: str | None = None
) -> Sequence[Outcome]:
    return await publisher.publish([Envelope(each, topic) for each in messages], timeout=timeout)


async def arrived(url: str, topic: str) -> list[object]:
    return [message_in(record).data for record in await asyncio.to_thread(everything_in, url, topic)]


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


# ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_goes_to_the_topic_of_its_route_else_its_own_else_the_urls(kafka_url: str) -> None:
    with fresh_topic(kafka_url) as routes, fresh_topic(kafka_url) as own, fresh_topic(kafka_url) as default:
        async with publishing(f"{kafka_url}/{default}") as publisher:
            await publish(publisher, message(1, topic=own), topic=routes)
            await publish(publisher, message(2, topic=own), message(3))
        assert [await arrived(kafka_url, topic) for topic in (routes, own, default)] == [[1], [2], [3]]


async def test_a_message_without_any_topic_is_rejected_and_takes_no_other_with_it(
    kafka_url: str, kafka_topic: str
) -> None:
    async with publishing(kafka_url) as publisher:
        nowhere, somewhere = await publish(publisher, message(1), message(2, topic=kafka_topic))
    assert isinstance(nowhere, Rejected)
    assert nowhere.code == "NO_TOPIC"
    assert isinstance(somewhere, Sent)


async def test_a_message_to_a_missing_topic_stops_its_key_before_anything_is_sent(
    kafka_url: str, kafka_topic: str
) -> None:
    """The next one of the key goes to a topic that is there: it must not overtake."""
    async with publishing(f"{kafka_url}/{kafka_topic}") as publisher:
        missing, behind, other = await publish(
            publisher, message(1, "a", topic=f"{kafka_topic}.not"), message(2, "a"), message(3, "b")
        )
    assert isinstance(missing, Rejected)
    assert missing.code == "UNROUTABLE"
    assert behind == KEY_STOPPED
    assert isinstance(other, Sent)
    assert await arrived(kafka_url, kafka_topic) == [3]


async def test_a_typo_in_the_url_is_told_when_it_opens(kafka_url: str, kafka_topic: str) -> None:
    publisher = KafkaPublisher(f"{kafka_url}/{kafka_topic}.typo")
    with pytest.raises(ConfigError, match=r"typo cannot be written to: .*nknown topic.*create the topic"):
        await publisher.open()
    await publisher.close()


async def test_a_topic_of_the_url_that_is_not_there_is_waited_for(kafka_url: str) -> None:
    """Should it vanish, or the relay start while the broker is away, no message dies of it."""
    publisher = KafkaPublisher(f"{kafka_url}/gone")
    with pytest.raises(ConfigError):
        await publisher.open()
    (outcome,) = await publish(publisher, message(1, "a"))
    await publisher.close()
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "UNROUTABLE"


async def test_a_topic_that_appears_is_used(kafka_url: str, kafka_topic: str) -> None:
    async with publishing(kafka_url) as publisher:
        with fresh_topic(kafka_url) as topic:
            pass
        (before,) = await publish(publisher, message(1), topic=topic)
        admin = AdminClient({"bootstrap.servers": servers_of(kafka_url), "log_level": 0})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
        (after,) = await publish(publisher, message(2), topic=topic)
    assert kinds([before, after]) == ["Rejected", "Sent"]


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_cannot_be_written_as_a_record_is_rejected_and_stops_its_key(
    kafka_url: str, kafka_topic: str
) -> None:
    async with publishing(f"{kafka_url}/{kafka_topic}") as publisher:
        odd = message(1, "a").replace(headers={"x-name": "\ud800"})
        outcomes = await publish(publisher, odd, message(2, "a"), message(3, "b"))
    assert isinstance(outcomes[0], Rejected)
    assert outcomes[0].code == "INVALID_MESSAGE"
    assert kinds(outcomes) == ["Rejected", "Unavailable", "Sent"]


def too_large_for_the_topic(key: str | None) -> Message:
    return Message("order.paid", key=key, body=json.dumps("x" * SMALL_TOPIC).encode())


async def test_a_message_that_the_broker_refuses_is_rejected_and_the_rest_of_its_batch_is_sent(kafka_url: str) -> None:
    """The broker refuses the whole batch for it: taken at its word, all of them would be dead."""
    with fresh_topic(kafka_url, partitions=1, max_message_bytes=str(SMALL_TOPIC)) as topic:
        async with publishing(f"{kafka_url}/{topic}") as publisher:
            outcomes = await publish(
                publisher, message(1, "a"), too_large_for_the_topic("b"), message(2, "a"), message(3, "b"), message(4)
            )
        assert kinds(outcomes) == ["Sent", "Rejected", "Sent", "Unavailable", "Sent"]
        assert outcomes[3] == KEY_STOPPED
        assert await arrived(kafka_url, topic) == [1, 2, 4]


async def a_refusal_between_batches(url: str) -> tuple[Sequence[Outcome], list[object]]:
    """Each message is a batch of its own, so that only one of them is refused while others are on their way."""
    with fresh_topic(url, partitions=1, max_message_bytes=str(SMALL_TOPIC)) as topic:
        async with publishing(f"{url}/{topic}?batch.size=1") as publisher:
            batch = [message(0, "a"), too_large_for_the_topic("a"), *(message(number, "a") for number in range(1, 20))]
            outcomes = await publish(publisher, *batch)
        return outcomes, await arrived(url, topic)


async def test_nothing_of_a_key_is_sent_after_the_broker_refused_one_of_it(kafka_url: str) -> None:
    outcomes, there = await a_refusal_between_batches(kafka_url)
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].code == "PAYLOAD_TOO_LARGE"
    assert not any(isinstance(outcome, Sent) for outcome in outcomes[1:])
    assert there == [0]


async def test_a_refused_message_costs_nobody_else_an_attempt(kafka_url: str) -> None:
    """Each is a batch of its own again: many are on their way, or wait, when one is refused."""
    with fresh_topic(kafka_url, partitions=2, max_message_bytes=str(SMALL_TOPIC)) as topic:
        async with publishing(f"{kafka_url}/{topic}?batch.size=1") as publisher:
            batch = [message([number, f"k{number % 7}"], f"k{number % 7}") for number in range(300)]
            batch[100:100] = [too_large_for_the_topic("x")]
            batch[200:200] = [too_large_for_the_topic("k0")]
            outcomes = await publish(publisher, *batch)
        stopped = [place for place, each in enumerate(batch) if place >= 200 and each.key == "k0"]
        assert [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Rejected)] == [100, 200]
        assert [place for place, outcome in enumerate(outcomes) if outcome == KEY_STOPPED] == stopped[1:]
        assert kinds(outcomes).count("Sent") == len(batch) - 1 - len(stopped)
        there = await arrived(kafka_url, topic)
        sent = [each.data for each, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, Sent)]
        for key in range(7):
            mine = [data for data in sent if data[1] == f"k{key}"]
            assert [data for data in there if isinstance(data, list) and data[1] == f"k{key}"] == mine


async def test_without_the_gapless_guarantee_it_would_be(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.OWN, "enable.gapless.guarantee", False)
    outcomes, there = await a_refusal_between_batches(kafka_url)
    assert any(isinstance(outcome, Sent) for outcome in outcomes[2:])
    assert there[1:] != []


async def test_the_publisher_goes_on_after_its_producer_had_to_stop(kafka_url: str) -> None:
    with fresh_topic(kafka_url, partitions=1, max_message_bytes=str(SMALL_TOPIC)) as topic:
        async with publishing(f"{kafka_url}/{topic}?batch.size=1") as publisher:
            await publish(publisher, message(0, "a"), too_large_for_the_topic("a"), message(1, "a"))
            assert kinds(await publish(publisher, message(1, "a"), message(2, "a"))) == ["Sent", "Sent"]
        assert await arrived(kafka_url, topic) == [0, 1, 2]


async def test_a_compacted_topic_refuses_a_message_without_a_key_and_it_alone(kafka_url: str) -> None:
    with fresh_topic(kafka_url, partitions=1, cleanup_policy="compact") as topic:
        async with publishing(f"{kafka_url}/{topic}") as publisher:
            outcomes = await publish(publisher, message(1, "a"), message(2), message(3, "b"))
        assert kinds(outcomes) == ["Sent", "Rejected", "Sent"]
        assert await arrived(kafka_url, topic) == [1, 3]


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_unanswered_when_the_time_is_up_may_have_arrived_and_nothing_is_sent_later(
    kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In flight are a few requests; all the rest waits inside librdkafka, and must not leave it any more."""
    # However slow this machine is: the broker fell silent just after it had answered, so nobody asks it first.
    monkeypatch.setattr(connection, "FRESH_SECONDS", 3_600.0)
    with fresh_topic(kafka_broker.url, partitions=1) as topic:
        async with publishing(f"{kafka_broker.url}/{topic}?batch.size=10000") as publisher:
            await publish(publisher, message("first", "a"))
            with kafka_broker.silent():
                late = await publish(publisher, *(message(number, "a") for number in range(5000)), timeout=SHORT)
            assert set(kinds(late)) == {"Failed"}
            assert all(isinstance(outcome, Failed) and outcome.unknown for outcome in late)
            # This one goes the same way, so whatever was to come has come before it.
            assert kinds(await publish(publisher, message("last", "a"))) == ["Sent"]
        there = await arrived(kafka_broker.url, topic)
        in_flight = [data for data in there if isinstance(data, int)]
        assert in_flight == list(range(len(in_flight)))
        assert len(in_flight) < 2500
        assert [there[0], there[-1]] == ["first", "last"]


async def test_a_full_queue_is_waited_for_and_nothing_is_lost(kafka_url: str, kafka_topic: str) -> None:
    async with publishing(f"{kafka_url}/{kafka_topic}?queue.buffering.max.messages=10") as publisher:
        outcomes = await publish(publisher, *(message(number, "a") for number in range(500)))
    assert kinds(outcomes) == ["Sent"] * 500
    assert await arrived(kafka_url, kafka_topic) == list(range(500))


async def test_many_batches_at_once_each_get_their_own_answers(kafka_url: str, kafka_topic: str) -> None:
    async with publishing(f"{kafka_url}/{kafka_topic}") as publisher:
        batches = [[message([batch, each], f"k{batch}") for each in range(200)] for batch in range(8)]
        answers = await asyncio.gather(*(publish(publisher, *batch) for batch in batches))
    assert [kinds(answer) for answer in answers] == [["Sent"] * 200] * 8
    there = await arrived(kafka_url, kafka_topic)
    for batch in range(8):
        assert [data for data in there if isinstance(data, list) and data[0] == batch] == [
            [batch, n] for n in range(200)
        ]


async def test_what_is_being_published_is_answered_before_it_closes(kafka_url: str, kafka_topic: str) -> None:
    publisher = KafkaPublisher(f"{kafka_url}/{kafka_topic}")
    assert kinds(await publish(publisher, message(0))) == ["Unavailable"]
    await publisher.open()
    publishing = asyncio.create_task(publish(publisher, *(message(number) for number in range(1000))))
    await asyncio.sleep(0)
    await publisher.close()
    assert kinds(await publishing) == ["Sent"] * 1000
    assert kinds(await publish(publisher, message(0))) == ["Unavailable"]
    await publisher.open()
    assert kinds(await publish(publisher, message(1000))) == ["Sent"]
    await publisher.close()


# ── away, or refusing us ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_broker_that_is_away_is_told_in_one_sentence_and_nothing_else(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.transports.kafka.publisher.OPEN_SECONDS", 0.5)
    publisher = KafkaPublisher(f"kafka://127.0.0.1:{free_port()}/orders")
    with pytest.raises(TransportUnavailable, match=r"No Kafka answers at kafka://127.*refused.*start it"):
        await publisher.open()
    outcomes = await publish(publisher, message(1, "a"), message(2, "a"), timeout=SHORT)
    await publisher.close()
    assert [isinstance(outcome, Unavailable) and outcome.code for outcome in outcomes] == ["CONNECT_FAILED"] * 2
    assert capfd.readouterr().err == "", "librdkafka's own lines are not for the terminal"


async def test_a_producer_that_cannot_be_made_any_more_costs_no_attempt(
    kafka_url: str, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(settings: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed"))

    async with publishing(f"{kafka_url}/{kafka_topic}") as publisher:
        publisher._idle.clear()
        monkeypatch.setattr("postroom.transports.kafka.publisher.ProducerConnection", gone)
        outcomes = await publish(publisher, message(1), message(2))
    assert outcomes == [Unavailable("NO_PRODUCER", "ssl.ca.location failed")] * 2


async def test_the_password_decides_who_comes_in(kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.transports.kafka.publisher.OPEN_SECONDS", 3)
    with fresh_topic(kafka_broker.url) as topic:
        url = f"{kafka_broker.locked_url}/{topic}?{SASL}&sasl.username={LOCKED}&sasl.password="
        async with publishing(url + LOCKED_PASSWORD) as publisher:
            assert kinds(await publish(publisher, message(1))) == ["Sent"]
        intruder = KafkaPublisher(url + "a-guess")
        with pytest.raises(TransportRefused, match="Authentication failed") as caught:
            await intruder.open()
        (outcome,) = await publish(intruder, message(2), timeout=SHORT)
        await intruder.close()
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "AUTHENTICATION_FAILED"
    assert "a-guess" not in str(caught.value) + outcome.error


async def test_a_topic_we_may_not_write_to_is_tried_again(kafka_broker: Broker) -> None:
    with fresh_topic(kafka_broker.url) as allowed, fresh_topic(kafka_broker.url) as denied:
        deny_writing(kafka_broker.url, denied)
        user = f"{SASL}&sasl.username={LOCKED}&sasl.password={LOCKED_PASSWORD}"
        async with publishing(f"{kafka_broker.locked_url}/{allowed}?{user}") as publisher:
            outcomes = await publish(publisher, message(1, "a", topic=denied), message(2, "b"))
            assert isinstance(outcomes[0], Failed)
            assert (outcomes[0].code, outcomes[0].unknown) == ("NOT_AUTHORIZED", False)
            assert isinstance(outcomes[1], Sent)
        async with publishing(f"{kafka_broker.locked_url}/{denied}?{user}") as publisher:
            (outcome,) = await publish(publisher, message(1, "a"))
    assert isinstance(outcome, Unavailable), "it is the URL's own topic, so it is the route that is closed"
    assert outcome.code == "NOT_AUTHORIZED"


def deny_writing(url: str, topic: str) -> None:
    from confluent_kafka.admin import _acl
    from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

    who = f"User:{LOCKED}"
    rules = [
        _acl.AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, who, "*", operation, permission)
        for operation, permission in (
            (_acl.AclOperation.WRITE, _acl.AclPermissionType.DENY),
            (_acl.AclOperation.DESCRIBE, _acl.AclPermissionType.ALLOW),
        )
    ]
    admin = AdminClient({"bootstrap.servers": servers_of(url), "log_level": 0})
    for done in admin.create_acls(rules).values():
        done.result(20)
