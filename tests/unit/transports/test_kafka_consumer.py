"""Receiving from a real Kafka: what its groups, its time limits and its outages do to a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import KafkaError, TopicPartition
from tests.servers.broker import LOCKED, LOCKED_PASSWORD, Broker
from tests.servers.ports import free_port
from tests.servers.topics import fresh_topic, servers_of
from tests.unit.transports.workers import Worker, check

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Sent
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts.consumer import data_of, numbered, receive
from postroom.testing.waiting import until_async
from postroom.transports.kafka import KafkaConsumer, KafkaPublisher, offsets, receiver

pytestmark = pytest.mark.timeout(240)

PACE = "session.timeout.ms=6000&heartbeat.interval.ms=300&max.poll.interval.ms=6000"
SECOND = timedelta(seconds=1)

Open = Callable[..., Awaitable[KafkaConsumer]]


@pytest.fixture
async def open_consumer() -> AsyncIterator[Open]:
    opened: list[KafkaConsumer] = []

    async def open_one(url: str, topic: str, *, settings: str = PACE, **options: Any) -> KafkaConsumer:
        opened.append(KafkaConsumer(f"{url}/{topic}?{settings}", group=f"{topic}.group", **options))
        await opened[-1].open()
        return opened[-1]

    yield open_one
    for consumer in opened:
        await consumer.close()


async def publish(url: str, topic: str, *messages: Message) -> None:
    publisher = KafkaPublisher(f"{url}/{topic}")
    await publisher.open()
    outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=30 * SECOND)
    assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes
    await publisher.close()


def committed(url: str, topic: str, partitions: int) -> int:
    """How many records the group has committed, over all partitions."""
    asking = Librdkafka({"bootstrap.servers": servers_of(url), "group.id": f"{topic}.group", "log_level": 0})
    places = asking.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=20)
    asking.close()
    return sum(max(place.offset, 0) for place in places)


async def test_receivers_that_come_and_go_under_load_lose_nothing_and_keep_the_order(
    kafka_url: str, open_consumer: Open
) -> None:
    keys, each, prefetch = 30, 200, 40
    log: list[tuple[str, int]] = []
    with fresh_topic(kafka_url, partitions=6) as topic:
        first = Worker(await open_consumer(kafka_url, topic, prefetch=prefetch), log, refuses=True)
        batches = [[Message("n", key=f"k{key}", data=number) for key in range(keys)] for number in range(each)]
        publishing = asyncio.create_task(_publish_slowly(kafka_url, topic, batches))
        await until_async(lambda: first.handled > 300, "the first is at work")
        second = Worker(await open_consumer(kafka_url, topic, prefetch=prefetch), log, refuses=True)
        await until_async(lambda: second.handled > 300, "the second has its share")
        await first.stop()
        await first.consumer.close()
        third = Worker(await open_consumer(kafka_url, topic, prefetch=prefetch), log, refuses=True)
        await until_async(lambda: third.handled > 100, "the third has its share")
        await publishing
        await until_async(lambda: len(set(log)) == keys * each, "all of it came")
        await second.stop()
        await third.stop()
        await second.consumer.close()
        await third.consumer.close()
        assert committed(kafka_url, topic, 6) == keys * each
    # Three times partitions moved, each time with no more than a handful in hand.
    check(log, keys, each, twice_at_most=3 * prefetch)


async def _publish_slowly(url: str, topic: str, batches: list[list[Message]]) -> None:
    publisher = KafkaPublisher(f"{url}/{topic}")
    await publisher.open()
    for batch in batches:
        outcomes = await publisher.publish([Envelope(message) for message in batch], timeout=30 * SECOND)
        assert all(isinstance(outcome, Sent) for outcome in outcomes)
        await asyncio.sleep(0.02)
    await publisher.close()


async def test_what_is_in_hand_while_a_partition_moves_is_lost_and_its_acknowledgement_ignored(
    kafka_url: str, open_consumer: Open
) -> None:
    with fresh_topic(kafka_url, partitions=2) as topic:
        first = await open_consumer(kafka_url, topic)
        await publish(kafka_url, topic, *(Message("n", key=f"k{number}", data=number) for number in range(20)))
        mine = await receive(first, 20)
        second = await open_consumer(kafka_url, topic)
        theirs = await receive(second, 1)
        await until_async(lambda: any(first.is_lost(each) for each in mine), "the first knows it")
        lost = [each for each in mine if first.is_lost(each)]
        assert 0 < len(lost) < 20
        await first.ack(lost)
        theirs += await receive(second, len(lost) - 1)
        assert sorted(data_of(theirs), key=str) == sorted(data_of(lost), key=str)
        await first.close()
        assert committed(kafka_url, topic, 2) == 0, "what was lost must not be committed by whoever lost it"


async def test_what_is_done_when_a_partition_moves_is_told_before_it_goes(
    kafka_url: str, open_consumer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "COMMIT_SECONDS", 1000)
    with fresh_topic(kafka_url, partitions=2) as topic:
        first = await open_consumer(kafka_url, topic)
        await publish(kafka_url, topic, *(Message("n", key=f"k{number}", data=number) for number in range(20)))
        await first.ack(await receive(first, 20))
        second = await open_consumer(kafka_url, topic)
        assert await receive(second, 1, patience=2 * SECOND) == []
        await publish(kafka_url, topic, *(Message("n", key=f"k{number}", data=number) for number in range(20, 40)))
        fresh = await receive(second, 20, patience=2 * SECOND)
        assert 0 < len(fresh) < 20, "each has a partition"
        assert min(int(str(each)) for each in data_of(fresh)) >= 20


async def test_a_receiver_that_leaves_makes_room_at_once(kafka_url: str, open_consumer: Open) -> None:
    with fresh_topic(kafka_url, partitions=1) as topic:
        slow = "session.timeout.ms=45000&heartbeat.interval.ms=300"
        first = await open_consumer(kafka_url, topic, settings=slow)
        await publish(kafka_url, topic, *numbered(2))
        await receive(first, 2)
        second = await open_consumer(kafka_url, topic, settings=slow)
        begin = monotonic()
        await first.close()
        assert data_of(await receive(second, 2)) == [0, 1]
        assert monotonic() - begin < 5


async def test_a_handler_slower_than_the_poll_interval_keeps_its_partitions_even_with_full_hands(
    kafka_url: str, kafka_topic: str, open_consumer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "WAITING_MIN", 10)
    consumer = await open_consumer(kafka_url, kafka_topic, prefetch=5)
    await publish(kafka_url, kafka_topic, *numbered(100))
    held = await receive(consumer, 5)
    await asyncio.sleep(9)  # the interval is 6 seconds, and nothing can be fetched meanwhile
    assert not any(consumer.is_lost(each) for each in held)
    seen = data_of(held)
    while held:
        await consumer.ack(held)
        held = await receive(consumer, 5) if len(seen) < 100 else []
        seen += data_of(held)
    assert seen == list(range(100))
    await consumer.close()
    assert committed(kafka_url, kafka_topic, 3) == 100


async def test_what_was_acknowledged_is_committed_soon_without_closing(
    kafka_url: str, kafka_topic: str, open_consumer: Open
) -> None:
    consumer = await open_consumer(kafka_url, kafka_topic)
    await publish(kafka_url, kafka_topic, *numbered(10))
    await consumer.ack(await receive(consumer, 10))
    for _ in range(50):
        if await asyncio.to_thread(committed, kafka_url, kafka_topic, 3) == 10:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("nothing was committed")


async def test_several_topics_are_received_together(kafka_url: str, kafka_topic: str, open_consumer: Open) -> None:
    with fresh_topic(kafka_url) as other:
        consumer = await open_consumer(kafka_url, f"{kafka_topic},{other}")
        await publish(kafka_url, kafka_topic, *numbered(1))
        await publish(kafka_url, other, *numbered(1, start=1))
        deliveries = await receive(consumer, 2)
        assert {(each.topic, each.message.data) for each in deliveries} == {(kafka_topic, 0), (other, 1)}


async def test_a_topic_that_is_not_there_is_told_at_the_start(kafka_url: str, open_consumer: Open) -> None:
    with pytest.raises(ConfigError, match=r"ordrs cannot be read: .*; create the topic, or correct the URL"):
        await open_consumer(kafka_url, "ordrs")


async def test_a_broker_that_is_away_at_the_start_is_told_and_receive_tries_again(kafka_broker: Broker) -> None:
    with fresh_topic(kafka_broker.url) as topic:
        await publish(kafka_broker.url, topic, *numbered(1))
        await asyncio.to_thread(kafka_broker.kill)
        consumer = KafkaConsumer(f"{kafka_broker.url}/{topic}?{PACE}", group="g")
        for attempt in (consumer.open(), consumer.receive(1, wait=SECOND)):
            with pytest.raises(TransportUnavailable, match=r"No Kafka answers at kafka://.*[Cc]onnect.*; start it"):
                await attempt
        await asyncio.to_thread(kafka_broker.start_again)
        assert data_of(await receive(consumer, 1, patience=40 * SECOND)) == [0]
        await consumer.close()


async def test_closing_is_quick_when_nobody_answers(kafka_broker: Broker) -> None:
    with fresh_topic(kafka_broker.url) as topic:
        consumer = KafkaConsumer(f"{kafka_broker.url}/{topic}?{PACE}", group="g")
        await consumer.open()
        await publish(kafka_broker.url, topic, *numbered(2))
        await consumer.ack((await receive(consumer, 2))[:1])
        await asyncio.to_thread(kafka_broker.kill)
        with pytest.raises(TransportUnavailable):
            await _receive_for_ever(consumer)
        begin = monotonic()
        await consumer.close()
        assert monotonic() - begin < 5


async def _receive_for_ever(consumer: KafkaConsumer) -> None:
    while True:
        await consumer.receive(1, wait=SECOND / 10)


@pytest.mark.parametrize(("sign", "quick"), [("no answer", 0.0), ("a broken connection", 1000.0)])
async def test_nothing_is_handed_out_while_it_is_doubtful_that_the_broker_is_there(
    kafka_url: str, kafka_topic: str, open_consumer: Open, monkeypatch: pytest.MonkeyPatch, sign: str, quick: float
) -> None:
    silent, asked, answered = Event(), Event(), Event()
    noting: list[Callable[[KafkaError], None]] = []

    class Silent(Librdkafka):
        """When it is told so, whoever asks for the topics has no answer until the end."""

        def __init__(self, settings: dict[str, Any]) -> None:
            noting.append(settings["error_cb"])
            super().__init__(settings)

        def list_topics(self, *args: Any, **options: Any) -> Any:
            if silent.is_set():
                asked.set()
                answered.wait(60)
            return super().list_topics(*args, **options)

    monkeypatch.setattr(receiver, "Consumer", Silent)
    monkeypatch.setattr(receiver, "PROBE_QUICK", quick)
    consumer = await open_consumer(kafka_url, kafka_topic)
    await publish(kafka_url, kafka_topic, *numbered(1))
    (delivery,) = await receive(consumer, 1)
    silent.set()
    await until_async(asked.is_set, "it asks whether the broker is there")
    # Now: an answer to an earlier question would have it forget this.
    if sign == "a broken connection":
        noting[-1](KafkaError(KafkaError._TRANSPORT))
    await consumer.nack(delivery)
    try:
        assert await consumer.receive(1, wait=SECOND / 10) == []
    finally:
        answered.set()
    assert data_of(await receive(consumer, 1)) == [0]


async def test_whom_the_broker_does_not_know_is_told_so(kafka_broker: Broker) -> None:
    with fresh_topic(kafka_broker.url) as topic:
        login = f"security.protocol=SASL_PLAINTEXT&sasl.mechanisms=PLAIN&sasl.username={LOCKED}&sasl.password="
        url = f"{kafka_broker.locked_url}/{topic}?{login}"
        wrong, right = KafkaConsumer(f"{url}s3cret"), KafkaConsumer(f"{url}{LOCKED_PASSWORD}")
        with pytest.raises(TransportRefused, match=r"[Aa]uthentication") as caught:
            await wrong.open()
        assert "s3cret" not in str(caught.value)
        await publish(kafka_broker.url, topic, *numbered(1))
        assert data_of(await receive(right, 1)) == [0]
        await right.close()


@pytest.mark.parametrize("kind", ["topic", "group"])
async def test_who_may_not_read_is_told_so_and_reads_once_it_may(kafka_broker: Broker, kind: str) -> None:
    with fresh_topic(kafka_broker.url) as topic:
        await publish(kafka_broker.url, topic, *numbered(1))
        login = f"security.protocol=SASL_PLAINTEXT&sasl.mechanisms=PLAIN&sasl.username={LOCKED}"
        url = f"{kafka_broker.locked_url}/{topic}?{PACE}&{login}&sasl.password={LOCKED_PASSWORD}"
        forget = deny_reading(kafka_broker.url, kind, topic if kind == "topic" else "closed")
        consumer = KafkaConsumer(url, group="closed")
        with pytest.raises(TransportUnavailable, match=r"does not let us read .*[Aa]uthorization") as caught:
            await _receive_for_ever(consumer)
        assert LOCKED_PASSWORD not in str(caught.value)
        forget()
        assert data_of(await receive(consumer, 1, patience=60 * SECOND)) == [0]
        await consumer.close()


def deny_reading(url: str, kind: str, name: str) -> Callable[[], None]:
    """Deny the locked user to read this topic or group; what is returned allows it again."""
    from confluent_kafka.admin import AdminClient, _acl
    from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

    resource = ResourceType.TOPIC if kind == "topic" else ResourceType.GROUP
    who, literal = f"User:{LOCKED}", ResourcePatternType.LITERAL
    rules = [
        _acl.AclBinding(resource, name, literal, who, "*", operation, permission)
        for operation, permission in (
            (_acl.AclOperation.READ, _acl.AclPermissionType.DENY),
            (_acl.AclOperation.DESCRIBE, _acl.AclPermissionType.ALLOW),
        )
    ]
    admin = AdminClient({"bootstrap.servers": servers_of(url), "log_level": 0})
    for done in admin.create_acls(rules).values():
        done.result(20)

    def forget() -> None:
        every = _acl.AclBindingFilter(
            resource, name, literal, who, "*", _acl.AclOperation.ANY, _acl.AclPermissionType.ANY
        )
        for done in admin.delete_acls([every]).values():
            done.result(20)

    return forget


async def test_a_topic_made_anew_under_a_receiver_is_read_from_its_beginning(
    kafka_url: str, open_consumer: Open
) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    with fresh_topic(kafka_url, partitions=1) as topic:
        consumer = await open_consumer(kafka_url, topic, settings=f"{PACE}&topic.metadata.refresh.interval.ms=500")
        await publish(kafka_url, topic, *numbered(5))
        await consumer.ack(await receive(consumer, 5))
        admin = AdminClient({"bootstrap.servers": servers_of(kafka_url), "log_level": 0})
        admin.delete_topics([topic])[topic].result(30)
        await asyncio.sleep(1)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        await publish(kafka_url, topic, *numbered(3, start=10))
        seen: list[object] = []
        deadline = monotonic() + 60
        while 12 not in seen and monotonic() < deadline:
            seen += data_of(await receive(consumer, 1, patience=SECOND))
        assert list(dict.fromkeys(seen)) == [10, 11, 12]


async def test_a_closed_receiver_can_be_opened_again(kafka_url: str, kafka_topic: str, open_consumer: Open) -> None:
    consumer = await open_consumer(kafka_url, kafka_topic)
    await publish(kafka_url, kafka_topic, *numbered(2))
    first, second = await receive(consumer, 2)
    await consumer.ack([first])
    await consumer.close()
    assert consumer.is_lost(second)
    await consumer.open()
    assert data_of(await receive(consumer, 1)) == [1]


async def test_nobody_there_is_told_with_the_address() -> None:
    consumer = KafkaConsumer(f"kafka://127.0.0.1:{free_port()}/orders")
    with pytest.raises(TransportUnavailable, match=r"No Kafka answers at kafka://127.0.0.1"):
        await consumer.open()
    await consumer.close()
