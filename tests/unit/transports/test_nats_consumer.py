"""What a NATS server does that a receiver must not be fooled by, each with a real one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig
from tests.conformance.test_nats_consumer import NatsBench
from tests.servers.nats_server import NatsServer, nats_of_my_own
from tests.servers.streams import at_once, create, fresh_stream

from postroom.contracts.transport import ConsumerOptions
from postroom.errors import ConfigError, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts.consumer import data_of, numbered, receive
from postroom.transports import open_consumer
from postroom.transports.nats import NatsConsumer

ACK_WAIT = 2


@pytest.fixture
def place(nats_url: str) -> Iterator[NatsBench]:
    with fresh_stream(nats_url) as stream:
        yield NatsBench(nats_url, stream, None)


@pytest.fixture
async def bench(place: NatsBench) -> AsyncIterator[NatsBench]:
    yield place
    for consumer in place.made:
        await consumer.close()


@pytest.fixture
def own_place(nats_server: NatsServer) -> Iterator[NatsBench]:
    with fresh_stream(nats_server.url) as stream:
        yield NatsBench(nats_server.url, stream, nats_server)


@pytest.fixture
async def own_bench(own_place: NatsBench) -> AsyncIterator[NatsBench]:
    yield own_place
    for consumer in own_place.made:
        await consumer.close()


async def test_a_server_that_stands_still_while_a_dead_ones_messages_are_awaited_keeps_the_order(
    own_bench: NatsBench,
) -> None:
    """Whoever waits by the clock takes the newer ones first."""
    assert own_bench.own is not None
    dying = await own_bench.consumer()
    await own_bench.publish(*numbered(4))
    assert data_of(await receive(dying, 4)) == [0, 1, 2, 3]
    await own_bench.vanish(dying)
    await own_bench.publish(*numbered(3, start=4))
    heir = await own_bench.consumer()
    receiving = asyncio.ensure_future(receive(heir, 7, patience=timedelta(seconds=30)))
    await asyncio.sleep(0.5)
    with own_bench.own.silent():
        await asyncio.sleep(ACK_WAIT + 2)
    assert data_of(await receiving) == list(range(7))


async def test_more_than_the_prefetch_left_by_a_dead_receiver_is_taken_over(bench: NatsBench) -> None:
    dying = await bench.consumer(prefetch=50)
    await bench.publish(*numbered(60))
    assert len(await receive(dying, 50)) == 50
    await bench.vanish(dying)
    heir = await bench.consumer(prefetch=3)
    seen: list[object] = []
    while len(seen) < 60:
        deliveries = await receive(heir, 3)
        assert 1 <= len(deliveries) <= 3
        seen += data_of(deliveries)
        await heir.ack(deliveries)
    assert seen == list(range(60))


async def test_a_second_receiver_stands_by_until_the_first_leaves(bench: NatsBench) -> None:
    first, second = await bench.consumer(), await bench.consumer()
    await bench.publish(*numbered(1))
    ((delivery,), nothing) = await asyncio.gather(
        receive(first, 1), receive(second, 1, patience=timedelta(seconds=1.5))
    )
    if nothing:  # it was the second that came first
        first, second, (delivery,) = second, first, nothing
    await bench.publish(*numbered(2, start=1))
    assert await receive(second, 1, patience=timedelta(seconds=1.5)) == []
    await first.ack([delivery])
    await first.close()
    assert data_of(await receive(second, 2)) == [1, 2]


async def test_every_death_is_counted_by_the_server(bench: NatsBench) -> None:
    await (await bench.consumer()).close()
    await bench.publish(*numbered(1))
    for before in range(3):
        consumer = await bench.consumer()
        (delivery,) = await receive(consumer, 1)
        assert delivery.redelivered == before
        await bench.vanish(consumer)


async def test_a_refused_message_that_the_stream_deleted_frees_its_key(bench: NatsBench) -> None:
    consumer = await bench.consumer()
    await bench.publish(*numbered(2))
    first, _ = await receive(consumer, 2)
    await consumer.nack(first, delay=timedelta(seconds=1))
    await bench.publish(*numbered(1, start=2))
    await asyncio.to_thread(at_once, bench.url, lambda js: js.delete_msg(bench.stream, 1))
    assert data_of(await receive(consumer, 1)) == [2]


async def test_a_refused_message_is_not_locked_out_by_those_that_wait_for_it(bench: NatsBench) -> None:
    consumer = await bench.consumer(prefetch=5)
    await bench.publish(*numbered(1))
    (delivery,) = await receive(consumer, 1)
    await consumer.nack(delivery, delay=timedelta(seconds=1))
    await bench.publish(*numbered(9, start=1))
    seen: list[object] = []
    while len(seen) < 10:
        deliveries = await receive(consumer, 1)
        seen += data_of(deliveries)
        await consumer.ack(deliveries)
    assert seen == list(range(10))


async def test_what_another_took_between_two_pulls_is_waited_for(bench: NatsBench) -> None:
    consumer = await bench.consumer(prefetch=2)
    await bench.publish(*numbered(2))
    held = await receive(consumer, 2)

    async def take_one(js: JetStreamContext) -> None:
        there = (await js.consumer_info(bench.stream, "billing")).config
        await js.add_consumer(bench.stream, there.evolve(max_ack_pending=100))
        other = await js.pull_subscribe_bind("billing", bench.stream)
        (taken,) = await other.fetch(1)
        assert b"2" in taken.data

    await bench.publish(*numbered(2, start=2))
    await asyncio.to_thread(at_once, bench.url, take_one)  # and it is gone, without a word
    await consumer.ack(held)
    assert data_of(await receive(consumer, 2)) == [2, 3]


async def test_other_keys_pass_a_refused_one(bench: NatsBench) -> None:
    consumer = await bench.consumer()
    await bench.publish(*numbered(1, key="a"))
    (delivery,) = await receive(consumer, 1)
    await consumer.nack(delivery, delay=timedelta(seconds=3))
    await bench.publish(*numbered(1, key="a", start=1), *numbered(1, key="b", start=2))
    begin = time.monotonic()
    assert data_of(await receive(consumer, 1)) == [2]
    assert time.monotonic() - begin < 2
    assert data_of(await receive(consumer, 2)) == [0, 1]


async def test_what_was_in_hand_when_the_server_went_is_lost_and_says_so(own_bench: NatsBench) -> None:
    consumer = await own_bench.consumer()
    await own_bench.publish(*numbered(1))
    (delivery,) = await receive(consumer, 1)
    assert not consumer.is_lost(delivery)
    await own_bench.go_away()
    with pytest.raises(TransportUnavailable):
        await consumer.receive(1, wait=timedelta(seconds=5))
    assert consumer.is_lost(delivery)
    await own_bench.come_back()
    (again,) = await receive(consumer, 1)
    assert consumer.is_lost(delivery)
    assert not consumer.is_lost(again)
    await consumer.nack(delivery)
    await consumer.terminate(delivery)
    assert not consumer.is_lost(again), "what is said of a lost delivery concerns no other"


async def test_what_a_process_that_stood_still_has_in_hand_is_lost_and_says_so(bench: NatsBench) -> None:
    consumer = await bench.consumer()
    await bench.publish(*numbered(2))
    first, second = await receive(consumer, 2)
    await consumer.ack([first])
    time.sleep(ACK_WAIT + 1)  # noqa: ASYNC251 - nothing of this process runs meanwhile
    assert consumer.is_lost(second)
    (again,) = await receive(consumer, 1)
    assert (again.message.data, consumer.is_lost(again)) == (1, False)


async def test_a_receiver_needs_no_more_rights_than_the_page_says() -> None:
    relay = '{publish: ["$JS.API.STREAM.INFO.S", "S.paid"], subscribe: ["_INBOX.>"]}'
    group = '{publish: ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.>", "$JS.ACK.>"], subscribe: ["_INBOX.>"]}'
    config = f"""accounts {{ shop {{ jetstream: enabled, users: [ {{user: "root", password: "r"}},
        {{user: "relay", password: "x", permissions: {relay}}}, {{user: "group", password: "y", permissions: {group}}}] }} }}"""
    with nats_of_my_own(config) as server:
        create(server.url.replace("://", "://root:r@"), "S", subjects=["S.>"])
        sending = NatsBench(server.url.replace("://", "://relay:x@"), "S", None)
        receiving = NatsBench(server.url.replace("://", "://group:y@"), "S", None)
        consumer = await receiving.consumer()
        await sending.publish(*numbered(3))
        deliveries = await receive(consumer, 3)
        assert data_of(deliveries) == [0, 1, 2]
        await consumer.ack(deliveries[:1])
        await consumer.close()
        again = await receiving.consumer()
        assert data_of(await receive(again, 2)) == [1, 2]
        await again.close()


async def test_a_stream_that_is_not_there_is_told_when_it_is_opened(nats_url: str) -> None:
    consumer = open_consumer(f"{nats_url}/NOT-THERE", ConsumerOptions(group="billing"))
    with pytest.raises(ConfigError, match="There is no stream 'NOT-THERE'"):
        await consumer.open()
    await consumer.close()


async def test_a_group_that_reads_something_else_is_not_changed(bench: NatsBench) -> None:
    await bench.consumer()
    other = NatsConsumer(f"{bench.url}/{bench.stream}", group="billing")
    with pytest.raises(ConfigError, match="choose another group"):
        await other.open()


async def test_a_consumer_of_somebody_else_is_not_taken_for_a_group(bench: NatsBench) -> None:
    config = ConsumerConfig(durable_name="billing", filter_subject=bench.subject, max_waiting=512)
    await asyncio.to_thread(at_once, bench.url, lambda js: js.add_consumer(bench.stream, config))
    with pytest.raises(ConfigError, match="Postroom did not make"):
        await bench.consumer()


async def test_nobody_there_is_told_soon() -> None:
    consumer = NatsConsumer("nats://127.0.0.1:1/ORDERS")
    begin = time.monotonic()
    with pytest.raises(TransportUnavailable, match="No NATS answers"):
        await consumer.open()
    with pytest.raises(TransportUnavailable, match="No NATS answers"):
        await consumer.receive(1, wait=timedelta(seconds=1))
    assert time.monotonic() - begin < 3


async def test_a_closed_receiver_says_so(bench: NatsBench) -> None:
    consumer = await bench.consumer()
    await consumer.close()
    with pytest.raises(TransportUnavailable, match="is closed"):
        await consumer.receive(1, wait=timedelta(seconds=1))


async def test_receivers_that_come_and_go_and_die_keep_the_order_of_every_key(bench: NatsBench) -> None:
    """What counts is when each message is first handled: by whichever receiver, after all before it of its key were."""
    keys, each, dice = 8, 30, random.Random(7)
    await (await bench.consumer()).close()
    messages = [Message("t", key=f"k{key}", data=number) for number in range(each) for key in range(keys)]
    await bench.publish(*messages)
    handled: dict[str, list[int]] = {f"k{key}": [] for key in range(keys)}

    async def work() -> None:
        while sum(map(len, handled.values())) < keys * each:
            consumer = await bench.consumer(prefetch=7)
            for _ in range(dice.randrange(1, 12)):
                with suppress(TransportUnavailable):
                    deliveries = list(await consumer.receive(dice.randrange(1, 7), wait=timedelta(seconds=0.5)))
                    while deliveries:
                        delivery = deliveries.pop(0)
                        await asyncio.sleep(dice.random() * 0.01)
                        if dice.random() < 0.1:
                            for back in (delivery, *deliveries):
                                await consumer.nack(back, delay=timedelta(seconds=dice.choice([0, 0.05, 0.1])))
                            break
                        line, number = handled[str(delivery.message.key)], delivery.message.data
                        if number not in line:
                            line.append(number)
                        await consumer.ack([delivery])
            await (bench.vanish(consumer) if dice.random() < 0.3 else consumer.close())

    async with asyncio.timeout(90):
        await asyncio.gather(*(work() for _ in range(3)))
    assert handled == {f"k{key}": list(range(each)) for key in range(keys)}
