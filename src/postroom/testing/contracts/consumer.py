"""What a transport's receiving side must do.

An implementation brings a *bench*: how to make receivers of a group, a way to publish, and, as far as the broker can be made
to, the faults. A case that needs a fault the bench cannot make is skipped, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

import pytest

from postroom.clock import monotonic
from postroom.contracts.transport import Consumer, Delivery
from postroom.errors import TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts._case import a_message, refused_by
from postroom.text import is_storable

PATIENCE = timedelta(seconds=20)
"""How long what must come may take. A dead receiver's messages come back when the broker notices."""
QUIET = timedelta(seconds=0.7)
"""How long what must not come is waited for."""


class Bench(Protocol):
    """A topic of its own at the broker, seen from the test."""

    longest_hold: timedelta | None
    """After so long the broker would give an unacknowledged message to others, if nobody prolonged it; None: it waits."""

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> Consumer:
        """A new receiver, opened; the bench closes it in the end."""

    async def publish(self, *messages: Message) -> None:
        """Put them into the topic, in this order, as Postroom's publisher does."""

    async def publish_foreign(self) -> bool:
        """Put something there that is not a CloudEvent; False where that cannot be."""

    async def vanish(self, consumer: Consumer) -> bool:
        """Let this receiver end as if its process was killed: nothing is said to the broker; False where that cannot be."""

    async def go_away(self) -> bool:
        """The broker stops answering; False where that cannot be."""

    async def come_back(self) -> None:
        """It answers again."""

    # Where the broker can tell, also: def wrong(self) -> Mapping[str, Consumer]
    # Receivers, not opened, whose URL is wrong; by what is wrong with it: a password, a topic, a host.


async def receive(consumer: Consumer, number: int, *, patience: timedelta | None = None) -> list[Delivery]:
    """So many deliveries, or as many as come in that time."""
    deliveries: list[Delivery] = []
    until = monotonic() + (patience or PATIENCE).total_seconds()
    while len(deliveries) < number and monotonic() < until:
        with suppress(TransportUnavailable):
            deliveries += await consumer.receive(number - len(deliveries), wait=timedelta(seconds=0.5))
    return deliveries


async def _receive_until_it_fails(consumer: Consumer) -> list[Delivery]:
    """Some brokers have sent the next messages already: those come first."""
    received: list[Delivery] = []
    for _ in range(100):
        try:
            received += await consumer.receive(1, wait=timedelta(seconds=0.3))
        except TransportUnavailable:
            return received
    raise AssertionError("the broker is away, but receiving raised no error")


def _skip_unless(consumer: Consumer, capability: str) -> None:
    """The case needs what this transport says that it cannot do."""
    if not getattr(consumer.capabilities, capability):
        pytest.skip(f"{consumer.capabilities.name} does not declare {capability}")


def data_of(deliveries: Sequence[Delivery]) -> list[object]:
    return [delivery.message.data for delivery in deliveries]


def numbered(count: int, *, key: str | None = "a", start: int = 0) -> list[Message]:
    return [a_message(key=key, data=number) for number in range(start, start + count)]


def _wrong(bench: Bench) -> Mapping[str, Consumer]:
    found: Mapping[str, Consumer] = getattr(bench, "wrong", dict)()
    if not found:
        pytest.skip("there is no wrong URL of this transport here")
    return found


class ConsumerContract:
    """Subclass it, provide the fixture `bench`, run pytest."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_what_is_wrong_with_the_url_is_said_at_the_start(self, bench: Bench) -> None:
        """A wrong password, or a queue that is not there, does not pass by itself: a person must hear of it."""
        for consumer in _wrong(bench).values():
            try:
                await refused_by(consumer.open())
            finally:
                await consumer.close()

    async def test_a_broker_that_is_away_at_the_start_is_no_mistake_in_the_url(self, bench: Bench) -> None:
        if not await bench.go_away():
            pytest.skip("this broker cannot be away")
        with pytest.raises(TransportUnavailable):
            await (await bench.consumer()).open()
        await bench.come_back()
        await (await bench.consumer()).open()

    async def test_opening_twice_is_once(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await consumer.open()
        await bench.publish(a_message(data=1))
        assert [each.message.data for each in await receive(consumer, 1)] == [1]

    async def test_a_message_is_received_as_it_was_given(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        message = a_message(
            key="ключ 7%", headers={"x-tenant": "acme"}, correlation_id="c-1", causation_id="c-0", aggregate="order"
        )
        await bench.publish(message)
        (delivery,) = await receive(consumer, 1)
        given = message.replace(topic=None)
        arrived = delivery.message.replace(topic=None, headers=given.headers)
        assert arrived == given
        assert delivery.message.headers.get("x-tenant") == "acme"
        assert (delivery.fault, delivery.redelivered, delivery.source) == (None, 0, "postroom")

    async def test_bytes_stay_bytes(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        message = a_message(body=bytes(range(256)), content_type="application/octet-stream")
        await bench.publish(message)
        (delivery,) = await receive(consumer, 1)
        assert (delivery.message.body, delivery.message.content_type) == (message.body, message.content_type)

    async def test_messages_of_a_key_are_received_in_order(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(50))
        deliveries = await receive(consumer, 50)
        assert data_of(deliveries) == list(range(50))

    async def test_nothing_comes_where_nothing_is(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        begin = monotonic()
        assert list(await consumer.receive(10, wait=timedelta(seconds=0.2))) == []
        assert monotonic() - begin < 5

    async def test_no_more_is_received_than_was_asked_for(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(5))
        first = await receive(consumer, 1)
        assert len(first) == 1
        assert data_of([*first, *await receive(consumer, 4)]) == [0, 1, 2, 3, 4]

    async def test_what_was_published_before_the_group_came_is_received_once_it_was_there(self, bench: Bench) -> None:
        await (await bench.consumer()).close()
        await bench.publish(*numbered(3))
        assert data_of(await receive(await bench.consumer(), 3)) == [0, 1, 2]

    async def test_what_was_acknowledged_does_not_come_again(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(3))
        await consumer.ack(await receive(consumer, 3))
        await consumer.close()
        again = await bench.consumer()
        assert data_of(await receive(again, 1, patience=QUIET)) == []
        await bench.publish(*numbered(1, start=3))
        assert data_of(await receive(again, 1)) == [3]

    async def test_what_was_in_hand_goes_back_when_a_receiver_leaves_and_comes_first(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(4))
        deliveries = await receive(consumer, 3)
        await consumer.ack(deliveries[:1])
        await consumer.close()
        await bench.publish(*numbered(1, start=4))
        assert data_of(await receive(await bench.consumer(), 4)) == [1, 2, 3, 4]

    async def test_what_a_dead_receiver_had_in_hand_comes_again_and_comes_first(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(4))
        deliveries = await receive(consumer, 3)
        await consumer.ack(deliveries[:1])
        if not await bench.vanish(consumer):
            pytest.skip("this receiver cannot vanish")
        await bench.publish(*numbered(1, start=4))
        # The acknowledgement may have been lost with it; nothing else may.
        again = await receive(await bench.consumer(), 4, patience=2 * PATIENCE)
        assert data_of(again)[-4:] in ([1, 2, 3, 4], [0, 1, 2, 3])

    async def test_what_was_refused_comes_again_before_what_is_behind_it(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(1))
        (delivery,) = await receive(consumer, 1)
        await consumer.nack(delivery, delay=timedelta(seconds=0.3))
        await bench.publish(*numbered(2, start=1))
        again = await receive(consumer, 3)
        if consumer.capabilities.ordered:
            assert data_of(again) == [0, 1, 2]
        else:
            assert sorted(map(int, map(str, data_of(again)))) == [0, 1, 2]
        first = next(each for each in again if each.message.data == 0)
        assert first.redelivered >= 1 or not consumer.capabilities.counts_redeliveries

    async def test_a_refused_message_holds_up_no_other_key_for_ever(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(a_message(key="a", data=0), a_message(key="b", data=1))
        deliveries = await receive(consumer, 2)
        await consumer.nack(next(each for each in deliveries if each.message.key == "a"))
        await consumer.ack([each for each in deliveries if each.message.key == "b"])
        assert data_of(await receive(consumer, 1)) == [0]

    async def test_what_was_terminated_never_comes_again(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(2))
        first, second = await receive(consumer, 2)
        await consumer.terminate(first)
        await consumer.ack([second])
        await consumer.close()
        assert await receive(await bench.consumer(), 1, patience=QUIET) == []

    async def test_acknowledged_out_of_turn_nothing_is_lost(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(3))
        deliveries = await receive(consumer, 3)
        await consumer.ack(deliveries[2:])
        await consumer.close()
        again = await receive(await bench.consumer(), 2)
        assert data_of(again)[:2] == [0, 1]

    async def test_no_more_is_in_hand_than_the_prefetch(self, bench: Bench) -> None:
        consumer = await bench.consumer(prefetch=5)
        await bench.publish(*numbered(12, key=None))
        deliveries = await receive(consumer, 12, patience=2 * QUIET)
        assert len(deliveries) == 5
        await consumer.ack(deliveries)
        assert len(await receive(consumer, 5)) == 5

    async def test_every_group_has_every_message(self, bench: Bench) -> None:
        billing = await bench.consumer("billing")
        _skip_unless(billing, "groups")
        mailing = await bench.consumer("mailing")
        await bench.publish(*numbered(2))
        for consumer in (billing, mailing):
            deliveries = await receive(consumer, 2)
            assert data_of(deliveries) == [0, 1]
            await consumer.ack(deliveries)

    async def test_what_is_held_long_stays_with_its_receiver(self, bench: Bench) -> None:
        if bench.longest_hold is None:
            pytest.skip("this broker sets no time limit")
        consumer = await bench.consumer()
        _skip_unless(consumer, "holds")
        await bench.publish(*numbered(1))
        held = await receive(consumer, 1)
        assert await receive(consumer, 1, patience=2.5 * bench.longest_hold) == []
        await consumer.ack(held)
        await consumer.close()
        assert await receive(await bench.consumer(), 1, patience=QUIET) == []

    async def test_what_is_no_event_says_so_and_can_be_put_aside(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        if not await bench.publish_foreign():
            pytest.skip("nothing else can get into this broker")
        await bench.publish(*numbered(1))
        foreign, ours = await receive(consumer, 2)
        assert foreign.fault
        assert foreign.message.body
        assert ours.fault is None
        await consumer.terminate(foreign)
        await consumer.ack([ours])
        await consumer.close()
        assert await receive(await bench.consumer(), 1, patience=QUIET) == []

    async def test_a_name_that_cannot_be_stored_is_no_event_of_ours(self, bench: Bench) -> None:
        """Where the sender waits for an answer, it is refused at the door instead."""
        consumer = await bench.consumer()
        await bench.publish(a_message(type="order\x00paid", key="b\x00", data="hostile"), *numbered(1))
        events = list[Delivery]()
        while 0 not in data_of(events):
            came = await receive(consumer, 1)
            assert came, "what came behind it was lost with it"
            assert all(each.message.body for each in came)
            events += [each for each in came if each.fault is None]
        names = [name for each in events for name in (each.message.type, each.message.key, each.topic) if name]
        assert [name for name in names if not is_storable(name)] == []

    async def test_a_broker_that_was_away_loses_nothing(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(3))
        before = await receive(consumer, 1)
        if not await bench.go_away():
            pytest.skip("this broker cannot go away")
        in_hand = [*before, *await _receive_until_it_fails(consumer)]
        await bench.come_back()
        kept = [each for each in in_hand if not consumer.is_lost(each)]
        await consumer.ack(before)  # perhaps in vain, and no error
        again = await receive(consumer, 3 - len(kept), patience=3 * PATIENCE) if len(kept) < 3 else []
        assert list(dict.fromkeys(data_of([*before, *kept, *again]))) == [0, 1, 2]

    async def test_acknowledging_twice_and_closing_twice_are_fine(self, bench: Bench) -> None:
        consumer = await bench.consumer()
        await bench.publish(*numbered(1))
        deliveries = await receive(consumer, 1)
        await consumer.ack(deliveries)
        await consumer.ack(deliveries)
        await asyncio.sleep(0)
        await consumer.close()
        await consumer.close()
