"""A Kafka of three brokers that loses one: leaders move, replicas are missing, and no message pays for that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from tests.servers.kafka_cluster import Cluster, cluster_of_my_own
from tests.servers.model import NotHere
from tests.servers.plugin import do_without

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Failed, Outcome, Sent, Unavailable
from postroom.message import Message
from postroom.relay.routes import Route
from postroom.transports import open_publisher
from postroom.transports.kafka import KafkaPublisher
from postroom.transports.kafka.outcomes import Partition, lost_brokers, trouble_in

TIMEOUT = timedelta(milliseconds=2500)
"""What a relay gives a send by default."""
TRIES = 1 + Route(to=open_publisher("null://")).retry.max_attempts


@pytest.fixture
def kafka_cluster() -> Iterator[Cluster]:
    try:
        with cluster_of_my_own() as cluster:
            yield cluster
    except NotHere as exc:
        do_without("kafka", str(exc))


async def publish(publisher: KafkaPublisher, timeout: timedelta = TIMEOUT) -> Sequence[Outcome]:
    """One message for each of many keys, which are in all partitions."""
    batch = [Envelope(Message("order.paid", key=f"k{number}")) for number in range(12)]
    return await publisher.publish(batch, timeout=timeout)


async def until_all_are_sent(publisher: KafkaPublisher, seconds: float) -> list[Outcome]:
    """Try again until all is sent; every outcome on the way that was none."""
    others: list[Outcome] = []
    until = monotonic() + seconds
    while monotonic() < until:
        outcomes = await publish(publisher)
        others += [outcome for outcome in outcomes if not isinstance(outcome, Sent)]
        if all(isinstance(outcome, Sent) for outcome in outcomes):
            return others
    raise AssertionError(f"not all was sent in time: {others}")


@pytest.mark.timeout(400)
async def test_a_lost_leader_and_missing_replicas_spend_no_attempt_and_all_goes_on_by_itself(
    kafka_cluster: Cluster,
) -> None:
    await asyncio.to_thread(kafka_cluster.make_topic, "two", in_sync=2)
    await asyncio.to_thread(kafka_cluster.make_topic, "three", in_sync=3)
    two, three = KafkaPublisher(f"{kafka_cluster.url}/two"), KafkaPublisher(f"{kafka_cluster.url}/three")
    for publisher in (two, three):
        await publisher.open()
        await until_all_are_sent(publisher, 60)

    await asyncio.to_thread(kafka_cluster.nodes[0].kill)
    moved = await until_all_are_sent(two, 60)
    assert not [outcome for outcome in moved if isinstance(outcome, Failed)], (
        "a leader was lost, and messages paid for it"
    )

    short = [outcome for _ in range(TRIES) for outcome in await publish(three, TIMEOUT / 2)]
    assert {type(outcome) for outcome in short} == {Unavailable}, (
        f"replicas are missing, and messages paid for it: {short}"
    )
    assert "NOT_ENOUGH_REPLICAS" in {outcome.code for outcome in short if isinstance(outcome, Unavailable)}

    await asyncio.to_thread(kafka_cluster.nodes[0].start_again)
    back = await until_all_are_sent(three, 60)
    assert not [outcome for outcome in back if isinstance(outcome, Failed)]
    for publisher in (two, three):
        await publisher.close()


def test_the_cluster_is_blamed_only_where_it_is_unwell() -> None:
    well = Partition(0, leader=1, replicas=3, in_sync=3)
    assert trouble_in("orders", [well], set()) is None
    assert trouble_in("orders", [well], {2}) is None, "another broker is lost, which leads nothing here"
    for partition, lost, code in (
        (Partition(1, leader=-1, replicas=3, in_sync=3), set[int](), "NO_LEADER"),
        (Partition(1, leader=2, replicas=3, in_sync=3), {2}, "NO_LEADER"),
        (Partition(1, leader=2, replicas=3, in_sync=1), set[int](), "NOT_ENOUGH_REPLICAS"),
    ):
        trouble = trouble_in("orders", [well, partition], lost)
        assert trouble is not None
        assert trouble.code == code


def test_a_lost_broker_is_known_by_what_librdkafka_says_of_it() -> None:
    said = "127.0.0.1:9093/2: Connect to ipv4#127.0.0.1:9093 failed: Connection refused (after 0ms in state CONNECT)"
    assert lost_brokers([said, "127.0.0.1:9092/bootstrap: Disconnected", "3/3 brokers are down"]) == {2}
