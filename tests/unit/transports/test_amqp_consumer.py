"""Receiving from a real RabbitMQ: who stands by takes over in order, refusals hold up nobody else, what is lost is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from time import process_time
from typing import Any

import pytest
from tests.servers.rabbit import Rabbit
from tests.servers.rabbit_queues import bind, channel_to, fresh_name, make_exchange, make_queue, remove

from postroom.clock import monotonic
from postroom.contracts.transport import Consumer, Envelope, Sent
from postroom.errors import ConfigError, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts.consumer import data_of, receive
from postroom.transports.amqp import AmqpConsumer, AmqpPublisher
from postroom.transports.amqp.receiver import arguments_for

QUIET = timedelta(seconds=0.5)


@pytest.fixture
async def exchange(amqp_url: str) -> AsyncIterator[str]:
    name = fresh_name()
    await make_exchange(amqp_url, name)
    yield name
    await remove(amqp_url, name, f"{name}.postroom")


@pytest.fixture
async def opened() -> AsyncIterator[list[Consumer]]:
    """Consumers to close in the end."""
    consumers: list[Consumer] = []
    yield consumers
    for consumer in consumers:
        await consumer.close()


async def open_one(url: str, opened: list[Consumer], prefetch: int | None = None) -> AmqpConsumer:
    consumer = AmqpConsumer(url, prefetch=prefetch)
    opened.append(consumer)
    await consumer.open()
    return consumer


async def put(url: str, *messages: Message) -> None:
    publisher = AmqpPublisher(url)
    await publisher.open()
    outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=10))
    await publisher.close()
    assert [type(outcome) for outcome in outcomes] == [Sent] * len(messages), outcomes


async def receive_often(consumer: Consumer) -> None:
    for _ in range(60):
        await consumer.receive(1, wait=QUIET)


def numbered(count: int, key: str | None = "a") -> list[Message]:
    return [Message("order.paid", key=key, data=number) for number in range(count)]


async def test_another_of_the_group_stands_by_and_takes_over_in_order(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}"
    active, other = await open_one(url, opened), await open_one(url, opened)
    await put(url, *numbered(6))
    in_hand = await receive(active, 4)
    assert data_of(in_hand) == [0, 1, 2, 3]
    assert await other.receive(10, wait=QUIET) == []
    await active.ack(in_hand[:2])
    await active.close()
    taken_over = await receive(other, 4)
    assert data_of(taken_over) == [2, 3, 4, 5]
    # RabbitMQ gave it all six, also those that nobody had asked for yet.
    assert [delivery.redelivered for delivery in taken_over] == [1] * 4


async def test_the_groups_queue_is_a_durable_quorum_queue_with_one_receiver_at_a_time(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    await open_one(f"{amqp_url}?exchange={exchange}", opened)
    async with channel_to(amqp_url) as channel:
        # RabbitMQ refuses to declare a queue again as something else.
        arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
        await channel.queue_declare(f"{exchange}.postroom", durable=True, arguments=arguments)


def test_newer_brokers_are_told_not_to_drop_messages() -> None:
    assert "x-delivery-limit" not in arguments_for((3, 13)), "an older one refuses it"
    assert arguments_for((4, 1))["x-delivery-limit"] == -1


async def test_a_binding_chooses_what_is_received(amqp_url: str, exchange: str, opened: list[Consumer]) -> None:
    consumer = await open_one(f"{amqp_url}?exchange={exchange}&binding=order.*&binding=refund.%23", opened)
    with_types = [Message(kind, data=kind) for kind in ("order.paid", "refund.a.b", "order.seen")]
    await put(f"{amqp_url}?exchange={exchange}", *with_types)
    deliveries = await receive(consumer, 3)
    assert sorted(delivery.topic for delivery in deliveries) == ["order.paid", "order.seen", "refund.a.b"]


async def test_a_refused_message_waits_in_hand_and_holds_up_its_own_key_alone(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}"
    consumer = await open_one(url, opened)
    await put(url, *numbered(2, "a"), *numbered(2, "b"))
    (first,) = await receive(consumer, 1)
    begin = monotonic()
    await consumer.nack(first, delay=timedelta(seconds=1))
    assert consumer.is_lost(first), "it ended with the nack"
    others = await receive(consumer, 2)
    assert {delivery.message.key for delivery in others} == {"b"}
    again = await receive(consumer, 2)
    assert data_of(again) == [0, 1]
    assert monotonic() - begin >= 1
    assert [delivery.redelivered for delivery in again] == [1, 0]


async def test_while_everything_waits_for_its_time_the_processor_rests(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}"
    consumer = await open_one(url, opened)
    await put(url, *numbered(3))
    (first,) = await receive(consumer, 1)
    await consumer.nack(first, delay=timedelta(seconds=60))
    begin = process_time()
    assert await consumer.receive(1, wait=timedelta(seconds=1)) == []
    assert process_time() - begin < 0.3


async def test_what_a_lost_channel_had_given_is_lost_and_comes_again(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}"
    consumer = await open_one(url, opened)
    await put(url, *numbered(3))
    before = await receive(consumer, 2)
    assert not any(map(consumer.is_lost, before))
    assert consumer._receiver is not None
    consumer._receiver.cut()
    assert all(map(consumer.is_lost, before))
    await consumer.ack(before)
    await consumer.nack(before[0])
    again = await receive(consumer, 3)
    assert data_of(again) == [0, 1, 2]
    assert all(map(consumer.is_lost, before)), "the new channel counts from one as well"


async def test_a_queue_that_is_deleted_is_an_outage_and_a_groups_is_made_anew(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}"
    ours, theirs = await open_one(url, opened), f"{exchange}.theirs"
    await make_queue(amqp_url, theirs)
    named = await open_one(f"{amqp_url}?queue={theirs}", opened)
    await remove(amqp_url, theirs, f"{exchange}.postroom")
    with pytest.raises(TransportUnavailable, match="no queue"):
        await receive_often(named)
    for _ in range(3):
        await ours.receive(1, wait=QUIET)
    await put(url, *numbered(1))
    assert data_of(await receive(ours, 1)) == [0]
    await make_queue(amqp_url, theirs)
    await put(f"{amqp_url}?queue={theirs}", *numbered(1))
    assert data_of(await receive(named, 1)) == [0]
    await named.close()
    await remove(amqp_url, theirs)


async def test_rabbitmq_itself_would_put_what_is_refused_behind_all_others(amqp_url: str, exchange: str) -> None:
    """Why it stays in hand here. The day this fails, it need not any more."""
    await make_queue(amqp_url, f"{exchange}.postroom")
    async with channel_to(amqp_url) as channel:
        for number in (b"0", b"1", b"2"):
            await channel.basic_publish(number, routing_key=f"{exchange}.postroom")
        refused = await channel.basic_get(f"{exchange}.postroom")
        await channel.basic_nack(refused.delivery_tag or 0)
        await asyncio.sleep(0.3)
        assert [(await channel.basic_get(f"{exchange}.postroom")).body for _ in range(3)] == [b"1", b"2", b"0"]


async def test_what_is_not_there_is_told_when_it_opens(amqp_url: str) -> None:
    for url, said in ((f"{amqp_url}?queue=ordrs", "no queue 'ordrs'"), (f"{amqp_url}?exchange=ordrs", "no exchange")):
        with pytest.raises(ConfigError, match=said):
            await AmqpConsumer(url).open()


async def test_a_queue_of_somebody_else_is_taken_as_it_is(amqp_url: str, exchange: str, opened: list[Consumer]) -> None:
    """A classic one, in the group's name: made on purpose, so it is used."""
    name = f"{exchange}.postroom"
    await make_queue(amqp_url, name, {"x-max-length": 100})
    await bind(amqp_url, name, exchange)
    consumer = await open_one(f"{amqp_url}?exchange={exchange}", opened)
    await put(f"{amqp_url}?exchange={exchange}", *numbered(3))
    deliveries = await receive(consumer, 3)
    assert data_of(deliveries) == [0, 1, 2]
    await consumer.ack(deliveries)


async def test_acknowledgements_that_are_on_their_way_arrive_before_it_closes(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}"
    consumer = await open_one(url, opened)
    await put(url, *numbered(200, None))
    deliveries = await receive(consumer, 200)
    odd = deliveries[1::2]
    await consumer.ack(odd)
    await consumer.close()
    left = await receive(await open_one(url, opened), 200, patience=timedelta(seconds=3))
    assert data_of(left) == data_of(deliveries[::2])


async def test_heartbeats_go_on_while_a_message_is_in_hand(
    amqp_url: str, exchange: str, opened: list[Consumer]
) -> None:
    url = f"{amqp_url}?exchange={exchange}&heartbeat=1"
    consumer = await open_one(url, opened)
    await put(f"{amqp_url}?exchange={exchange}", *numbered(1))
    (held,) = await receive(consumer, 1)
    await asyncio.sleep(4)
    assert not consumer.is_lost(held)
    await consumer.ack([held])


async def test_a_silent_broker_is_noticed_by_its_missing_heartbeats(amqp_server: Rabbit) -> None:
    await make_exchange(amqp_server.url, "orders")
    consumer = AmqpConsumer(f"{amqp_server.url}?exchange=orders&heartbeat=1")
    await consumer.open()
    with amqp_server.silent(), pytest.raises(TransportUnavailable):
        await receive_often(consumer)
    assert list(await consumer.receive(1, wait=QUIET)) == []
    await consumer.close()
