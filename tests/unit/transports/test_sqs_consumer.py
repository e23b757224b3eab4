"""The receiving side of SQS: what is in hand, for how long, and what goes back with what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.servers import sqs
from tests.servers.gate import Gate
from tests.servers.queues import HOLD, client_of, everything_in, fresh_queue, queue_url, with_queue
from tests.unit.transports.scripted_sqs import Answer, error, scripted_sqs

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Sent
from postroom.errors import ConfigError, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts.consumer import data_of, numbered, receive
from postroom.transports.sqs import SqsConsumer, SqsPublisher
from postroom.transports.sqs.encoding import body_of

SOON = timedelta(seconds=0.5)
Open = Callable[..., Awaitable[SqsConsumer]]


@pytest.fixture
def queue(sqs_url: str) -> Iterator[str]:
    with fresh_queue(sqs_url) as queue:
        yield queue


@asynccontextmanager
async def receivers(url: str) -> AsyncIterator[Open]:
    opened: list[SqsConsumer] = []

    async def open_one(prefetch: int = 100) -> SqsConsumer:
        opened.append(SqsConsumer(url, prefetch=prefetch))
        await opened[-1].open()
        return opened[-1]

    try:
        yield open_one
    finally:
        for each in opened:
            await each.close()


@pytest.fixture
async def open_receiver(sqs_url: str, queue: str) -> AsyncIterator[Open]:
    async with receivers(with_queue(sqs_url, queue)) as open_one:
        yield open_one


async def publish(url: str, queue: str, *messages: Message) -> None:
    publisher = SqsPublisher(with_queue(url, queue))
    await publisher.open()
    outcomes = await publisher.publish([Envelope(message) for message in messages], timeout=timedelta(seconds=20))
    await publisher.close()
    assert list(outcomes) == [Sent()] * len(messages)


# ── what goes back with what ──────────────────────────────────────────────────────────────────────────────────────────


async def test_with_a_refused_message_all_behind_it_of_its_key_goes_back(
    sqs_url: str, queue: str, open_receiver: Open
) -> None:
    consumer = await open_receiver()
    await publish(sqs_url, queue, *numbered(4, key="a"), *numbered(1, key="b", start=10))
    deliveries = await receive(consumer, 5)
    zero, one, two, three = [each for each in deliveries if each.message.key == "a"]
    (other,) = [each for each in deliveries if each.message.key == "b"]
    await consumer.ack([zero])
    await consumer.nack(one)
    assert [consumer.is_lost(each) for each in (one, two, three, other)] == [True, True, True, False]
    await consumer.ack([two])  # handled out of turn: in vain
    assert data_of(await receive(consumer, 3)) == [1, 2, 3]


async def test_what_was_prefetched_behind_a_refused_message_is_not_handed_out_before_it(
    sqs_url: str, queue: str, open_receiver: Open
) -> None:
    consumer = await open_receiver()
    await publish(sqs_url, queue, *numbered(5, key="a"))
    (zero,) = await receive(consumer, 1)
    await consumer.nack(zero, delay=timedelta(seconds=1))
    begin = monotonic()
    again = await receive(consumer, 5)
    assert data_of(again) == [0, 1, 2, 3, 4]
    assert monotonic() - begin > 0.8, "the group waits as long as its first message"
    assert [each.redelivered for each in again] == [1] * 5


async def test_in_a_standard_queue_a_refused_message_takes_no_other_with_it(sqs_url: str) -> None:
    with fresh_queue(sqs_url, fifo=False) as queue:
        async with receivers(with_queue(sqs_url, queue)) as open_one:
            consumer = await open_one()
            await publish(sqs_url, queue, *numbered(3, key="a"))
            deliveries = await receive(consumer, 3)
            await consumer.nack(deliveries[0])
            assert [consumer.is_lost(each) for each in deliveries] == [True, False, False]
            await consumer.ack(deliveries[1:])
            (again,) = await receive(consumer, 1)
            assert (again.message.data, again.redelivered) == (deliveries[0].message.data, 1)
            await consumer.terminate(again)
            assert await receive(consumer, 1, patience=SOON) == []


# ── how long ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_receiver_that_slept_too_long_knows_that_it_lost_what_it_had(
    sqs_url: str, queue: str, open_receiver: Open
) -> None:
    sleeper, other = await open_receiver(), await open_receiver()
    await publish(sqs_url, queue, *numbered(2, key="a"))
    held = await receive(sleeper, 2)
    assert sleeper._receiver
    async with sleeper._receiver._changing:  # nothing is prolonged now
        assert data_of(await receive(other, 2)) == [0, 1]
        assert [sleeper.is_lost(each) for each in held] == [True, True]
        await sleeper.ack(held)
        await sleeper.nack(held[0])
    assert await receive(other, 1, patience=SOON) == [], "nothing that the sleeper said counts any more"


async def test_a_prolonging_that_is_refused_means_that_it_is_lost_with_all_behind_it(
    sqs_url: str, queue: str, open_receiver: Open
) -> None:
    consumer = await open_receiver()
    await publish(sqs_url, queue, *numbered(3, key="a"), *numbered(1, key="b", start=10))
    deliveries = await receive(consumer, 4)
    by_data = {each.message.data: each for each in deliveries}
    await asyncio.to_thread(_show, sqs_url, queue, by_data[1].token.receipt.handle)
    until = monotonic() + 2 * HOLD
    while not consumer.is_lost(by_data[1]) and monotonic() < until:
        await asyncio.sleep(0.05)
    assert {data: consumer.is_lost(each) for data, each in by_data.items()} == {0: False, 1: True, 2: True, 10: False}
    await consumer.ack([by_data[0], by_data[10]])
    assert data_of(await receive(consumer, 2)) == [1, 2]


def _show(url: str, queue: str, handle: str) -> None:
    """Make a message visible behind its holder's back."""
    client_of(url).change_message_visibility(QueueUrl=queue_url(url, queue), ReceiptHandle=handle, VisibilityTimeout=0)


async def test_the_server_of_these_tests_refuses_a_receipt_that_has_run_out(sqs_url: str, queue: str) -> None:
    await publish(sqs_url, queue, *numbered(1))
    client, place = client_of(sqs_url), queue_url(sqs_url, queue)
    (first,) = client.receive_message(QueueUrl=place, VisibilityTimeout=1)["Messages"]
    await asyncio.sleep(1.1)
    with pytest.raises(client.exceptions.MessageNotInflight):
        client.change_message_visibility(QueueUrl=place, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=30)
    (second,) = client.receive_message(QueueUrl=place, VisibilityTimeout=1)["Messages"]
    entry = {"Id": "1", "ReceiptHandle": first["ReceiptHandle"]}
    assert client.delete_message_batch(QueueUrl=place, Entries=[entry])["Failed"][0]["SenderFault"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]


# ── many ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_many_are_received_at_once_and_deleted_in_tens(sqs_url: str, queue: str, open_receiver: Open) -> None:
    consumer = await open_receiver()
    await publish(sqs_url, queue, *numbered(60, key=None))
    asked: list[int] = []
    assert consumer._receiver
    consumer._receiver._client.sqs.meta.events.register(
        "provide-client-params.sqs.DeleteMessageBatch", lambda params, **_: asked.append(len(params["Entries"]))
    )
    deliveries = await receive(consumer, 60)
    assert sorted(map(str, data_of(deliveries))) == sorted(map(str, range(60)))
    await consumer.ack(deliveries)
    assert asked == [10] * 6
    assert everything_in(sqs_url, queue) == []


async def test_two_receivers_share_the_keys_and_each_key_stays_in_order(
    sqs_url: str, queue: str, open_receiver: Open
) -> None:
    await publish(sqs_url, queue, *[a for key in "abcdef" for a in numbered(15, key=key)])
    came: list[tuple[str | None, object]] = []
    had: dict[int, int] = {}

    async def work(consumer: SqsConsumer) -> None:
        while len(came) < 90:
            for delivery in await consumer.receive(10, wait=SOON):
                await asyncio.sleep(0.002)
                came.append((delivery.message.key, delivery.message.data))
                had[id(consumer)] = had.get(id(consumer), 0) + 1
                await consumer.ack([delivery])

    async with asyncio.timeout(60):
        await asyncio.gather(work(await open_receiver(10)), work(await open_receiver(10)))
    for key in "abcdef":
        assert [data for name, data in came if name == key] == list(range(15))
    assert len(had) == 2, "both had some"


# ── the way there ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_receiver_that_leaves_while_it_waits_leaves_soon_and_takes_nothing_along(
    sqs_url: str, queue: str, open_receiver: Open
) -> None:
    consumer = await open_receiver()
    waiting = asyncio.create_task(consumer.receive(10, wait=timedelta(seconds=20)))
    await asyncio.sleep(0.3)
    waiting.cancel()
    await publish(sqs_url, queue, *numbered(1))
    begin = monotonic()
    await consumer.close()
    assert monotonic() - begin < 3
    assert len(await asyncio.to_thread(everything_in, sqs_url, queue)) == 1


async def test_what_was_in_hand_when_sqs_went_away_is_lost_and_comes_soon_when_it_is_back(
    sqs_url: str, sqs_gate: Gate
) -> None:
    with fresh_queue(sqs_url, {"VisibilityTimeout": 20}) as queue:
        async with receivers(with_queue(sqs.url_at(sqs_gate.port), queue)) as open_one:
            consumer = await open_one()
            await publish(sqs_url, queue, *numbered(2))
            held = await receive(consumer, 2)
            sqs_gate.cut()
            with pytest.raises(TransportUnavailable, match="No SQS answers at sqs://"):
                await consumer.receive(1, wait=SOON)
            assert [consumer.is_lost(each) for each in held] == [True, True]
            sqs_gate.open()
            again = await receive(consumer, 2, patience=timedelta(seconds=10))
            assert (data_of(again), [each.redelivered for each in again]) == ([0, 1], [1, 1])


async def test_to_be_asked_too_much_takes_nothing_from_our_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sqs.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    raw = {"MessageId": "1", "ReceiptHandle": "h", "Body": body_of(Message("a", data=1), "shop")}
    script: list[Answer] = [(200, {"Messages": [raw]}), error("RequestThrottled"), (200, {"Messages": [raw]})]
    async with scripted_sqs() as scripted, receivers(with_queue(scripted.url, "orders")) as open_one:
        scripted.received = lambda: script.pop(0) if script else (200, {})
        consumer = await open_one()
        (first,) = await receive(consumer, 1)
        assert len(await receive(consumer, 1)) == 1
        assert not consumer.is_lost(first)


async def test_a_queue_that_cannot_be_received_from_is_told_at_the_start(sqs_url: str, sqs_gate: Gate) -> None:
    with pytest.raises(ConfigError, match="has no such queue"):
        await SqsConsumer(with_queue(sqs_url, "ordrs.fifo")).open()
    with (
        fresh_queue(sqs_url, {"VisibilityTimeout": 0}) as queue,
        pytest.raises(ConfigError, match="VisibilityTimeout of 0"),
    ):
        await SqsConsumer(with_queue(sqs_url, queue)).open()
    sqs_gate.cut()
    with pytest.raises(TransportUnavailable, match="No SQS answers"):
        await SqsConsumer(with_queue(sqs.url_at(sqs_gate.port), "orders")).open()


@pytest.mark.parametrize("prefetch", [0, -1])
def test_a_prefetch_below_one_is_refused(prefetch: int) -> None:
    with pytest.raises(ConfigError, match="give 1 or more"):
        SqsConsumer("sqs://eu-central-1/orders", prefetch=prefetch)
