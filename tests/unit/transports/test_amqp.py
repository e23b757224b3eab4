"""Deliveries to a real RabbitMQ: returns, nacks, refusals, alarms, silence; and whatever happens, no key out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.servers.ports import free_port
from tests.servers.rabbit import LARGEST, PASSWORD, USER, Rabbit
from tests.servers.rabbit_queues import bind, everything_in, fresh_name, make_exchange, make_queue, remove

from postroom.clock import monotonic
from postroom.contracts.transport import KEY_STOPPED, Envelope, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.message import Message
from postroom.transports.amqp import AmqpPublisher
from postroom.transports.amqp.encoding import PERSISTENT, read

LONG = timedelta(seconds=20)
SHORT = timedelta(seconds=2)


@pytest.fixture
async def queue(amqp_url: str) -> AsyncIterator[str]:
    """A fresh quorum queue."""
    name = fresh_name()
    await make_queue(amqp_url, name)
    yield name
    await remove(amqp_url, name)


@pytest.fixture
async def exchange(amqp_url: str, queue: str) -> AsyncIterator[str]:
    """A fresh topic exchange that the queue is bound to, for `order.*`."""
    name = f"{queue}.exchange"
    await make_exchange(amqp_url, name)
    await bind(amqp_url, queue, name, "order.*")
    yield name
    await remove(amqp_url, name)


@asynccontextmanager
async def publishing(url: str) -> AsyncIterator[AmqpPublisher]:
    publisher = AmqpPublisher(url)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


def message(data: object, key: str | None = None, **more: object) -> Message:
    return Message("order.paid", key=key, data=data, **more)  # type: ignore[arg-type]  # whatever the test is about


async def publish(
    publisher: AmqpPublisher, *messages: Message, timeout: timedelta = LONG, topic: str | None = None
) -> Sequence[Outcome]:
    return await publisher.publish([Envelope(each, topic) for each in messages], timeout=timeout)


async def arrived(url: str, queue: str) -> list[object]:
    found = await everything_in(url, queue)
    return [read(each.header.properties, each.body, topic="", redelivered=False).message.data for each in found]


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


# ── where it goes ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_routing_key_is_the_routes_topic_else_the_messages_own_else_its_type(
    amqp_url: str, queue: str, exchange: str
) -> None:
    async with publishing(f"{amqp_url}?exchange={exchange}") as publisher:
        outcomes = [
            *await publish(publisher, message(1, topic="order.own"), topic="order.route"),
            *await publish(publisher, message(2, topic="order.own"), message(3)),
        ]
    assert kinds(outcomes) == ["Sent"] * 3
    keys = [each.routing_key for each in await everything_in(amqp_url, queue)]
    assert sorted(str(key) for key in keys) == ["order.own", "order.paid", "order.route"]


async def test_without_an_exchange_a_message_goes_to_the_queue_of_its_topic_or_of_the_url(
    amqp_url: str, queue: str
) -> None:
    async with publishing(amqp_url) as publisher:
        nowhere, somewhere = await publish(publisher, message(1), message(2, topic=queue))
    assert isinstance(nowhere, Rejected)
    assert nowhere.code == "NO_TOPIC"
    assert isinstance(somewhere, Sent)
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        assert kinds(await publish(publisher, message(3))) == ["Sent"]
    assert await arrived(amqp_url, queue) == [2, 3]


async def test_a_message_is_persistent_and_each_attempt_has_an_id_of_its_own(amqp_url: str, queue: str) -> None:
    event = message(1)
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        await publish(publisher, event)
        await publish(publisher, event)
    first, second = [each.header.properties for each in await everything_in(amqp_url, queue)]
    assert first.delivery_mode == second.delivery_mode == PERSISTENT
    assert first.message_id != second.message_id
    for properties in (first, second):
        assert (properties.headers or {})["cloudEvents_id"] == str(event.id)


# ── what comes back, and what is refused ──────────────────────────────────────────────────────────────────────────────


async def test_what_no_queue_takes_is_rejected_though_the_broker_confirms_it(
    amqp_url: str, queue: str, exchange: str
) -> None:
    async with publishing(f"{amqp_url}?exchange={exchange}") as publisher:
        lost, fine = await publish(publisher, message(1, topic="invoice.paid"), message(2))
    assert isinstance(lost, Rejected)
    assert lost.code == "UNROUTABLE"
    assert isinstance(fine, Sent)
    assert await arrived(amqp_url, queue) == [2]


async def test_one_event_to_two_places_has_each_its_own_outcome(amqp_url: str, queue: str) -> None:
    """aiormq tells what came back by the message id; with the event's id in both they would be swapped."""
    event = message(1)
    async with publishing(amqp_url) as publisher:
        for _ in range(20):
            batch = [Envelope(event, f"{queue}.not"), Envelope(event, queue), Envelope(event, f"{queue}.neither")]
            assert kinds(await publisher.publish(batch, timeout=LONG)) == ["Rejected", "Sent", "Rejected"]
    assert len(await arrived(amqp_url, queue)) == 20


async def test_an_unroutable_message_stops_its_key(amqp_url: str, queue: str) -> None:
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        missing, behind, other = await publish(
            publisher, message(1, "a", topic=f"{queue}.not"), message(2, "a"), message(3, "b")
        )
    assert isinstance(missing, Rejected)
    assert behind == KEY_STOPPED
    assert isinstance(other, Sent)
    assert await arrived(amqp_url, queue) == [3]


async def test_a_queue_that_is_full_is_the_brokers_state_and_nothing_of_its_key_overtakes(amqp_url: str) -> None:
    full = fresh_name()
    limits = {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"}
    await make_queue(amqp_url, full, limits)
    async with publishing(f"{amqp_url}?queue={full}") as publisher:
        # A quorum queue notices a little late that it is full.
        outcomes = [(await publish(publisher, message(number, "a")))[0] for number in range(10)]
        refused = [outcome for outcome in outcomes if not isinstance(outcome, Sent)]
        assert refused
        assert {(type(outcome), outcome.code) for outcome in refused} == {(Unavailable, "NACKED")}
        first, second = await publish(publisher, message(10, "a"), message(11, "a"))
    assert isinstance(first, Unavailable)
    assert second == KEY_STOPPED
    await remove(amqp_url, full)


@pytest.mark.parametrize("letter", ["x", "ы"], ids=["ascii", "two bytes each"])
async def test_a_routing_key_of_more_than_255_bytes_is_rejected_and_takes_no_other_with_it(
    amqp_url: str, queue: str, letter: str
) -> None:
    size = len(letter.encode())
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        long, most, fine = await publish(
            publisher,
            message(1, topic=letter * (255 // size + 1)),
            message(2, topic=letter * (255 // size)),
            message(3),
        )
    assert isinstance(long, Rejected)
    assert long.code == "ROUTING_KEY_TOO_LONG"
    assert isinstance(most, Rejected)
    assert most.code == "UNROUTABLE", "255 bytes are a key like any other"
    assert isinstance(fine, Sent)


async def test_a_message_that_closes_the_channel_is_rejected_and_all_others_are_sent(amqp_url: str, queue: str) -> None:
    batch = [message(number, f"k{number % 40}") for number in range(200)]
    batch.insert(100, Message("order.paid", body=b"x" * (LARGEST + 1)))
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        outcomes = await publish(publisher, *batch)
        again = await publish(publisher, message(200), Message("order.paid", body=b"x" * LARGEST))
    assert isinstance(outcomes[100], Rejected)
    assert outcomes[100].code == "PAYLOAD_TOO_LARGE"
    assert set(kinds([*outcomes[:100], *outcomes[101:], *again])) == {"Sent"}


async def test_headers_that_fit_into_no_frame_are_rejected_and_the_connection_stays(amqp_url: str, queue: str) -> None:
    """Sent, they would end the connection, each time again, and take everything with them."""
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        large, fits, fine = await publish(
            publisher,
            message(1, headers={"x-note": "ы" * 70_000}),
            message(2, headers={"x-note": "x" * 120_000}),
            message(3),
        )
    assert isinstance(large, Rejected)
    assert large.code == "HEADERS_TOO_LARGE"
    assert kinds([fits, fine]) == ["Sent", "Sent"]


@pytest.mark.parametrize(
    "broken",
    [
        message(1, content_type="text/" + "x" * 300),
        message(1, headers={"x" * 300: "y"}),
        message(1, headers={"x-note": "\ud800"}),
    ],
    ids=["content type", "name", "surrogate"],
)
async def test_what_cannot_be_written_is_rejected_and_takes_no_other_with_it(
    amqp_url: str, queue: str, broken: Message
) -> None:
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        outcome, fine = await publish(publisher, broken, message(2))
        assert kinds(await publish(publisher, message(3))) == ["Sent"]
    assert isinstance(outcome, Rejected)
    assert outcome.code == "INVALID_MESSAGE"
    assert isinstance(fine, Sent)
    assert await arrived(amqp_url, queue) == [2, 3]


async def test_an_exchange_that_vanished_is_waited_for_and_used_when_it_is_back(
    amqp_url: str, queue: str, exchange: str
) -> None:
    """It is the URL that names it: that says nothing of the messages, so none dies."""
    async with publishing(f"{amqp_url}?exchange={exchange}") as publisher:
        await remove(amqp_url, exchange)
        outcomes = await publish(publisher, message(1, "a"), message(2, "a"), message(3))
        assert kinds(outcomes) == ["Unavailable"] * 3
        assert isinstance(outcomes[0], Unavailable)
        assert outcomes[0].code == "NO_EXCHANGE"
        await make_exchange(amqp_url, exchange)
        await bind(amqp_url, queue, exchange, "order.*")
        assert kinds(await publish(publisher, message(4, "a"))) == ["Sent"]
    assert await arrived(amqp_url, queue) == [4]


async def test_an_exchange_that_was_never_there_is_told_when_it_opens(amqp_url: str) -> None:
    publisher = AmqpPublisher(f"{amqp_url}?exchange=ordrs")
    with pytest.raises(ConfigError, match=r"cannot be written to: .*no exchange 'ordrs'.*create it"):
        await publisher.open()
    await publisher.close()


async def test_a_queue_of_the_url_that_is_gone_is_waited_for(amqp_url: str) -> None:
    publisher = AmqpPublisher(f"{amqp_url}?queue=gone")
    with pytest.raises(ConfigError, match="no queue 'gone'"):
        await publisher.open()
    (outcome,) = await publish(publisher, message(1, "a"))
    await publisher.close()
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "UNROUTABLE"


# ── brokers that are away, or silent, or have no room ─────────────────────────────────────────────────────────────────


async def test_nobody_there_is_told_in_a_sentence_and_no_message_pays_for_it() -> None:
    publisher = AmqpPublisher(f"amqp://app:s3cret@127.0.0.1:{free_port()}/")
    with pytest.raises(TransportUnavailable, match="No RabbitMQ lets us in at amqp://app:\\*\\*\\*@127"):
        await publisher.open()
    (outcome,) = await publish(publisher, message(1, topic="orders"))
    await publisher.close()
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "CONNECT_FAILED"
    assert "s3cret" not in str(outcome)


async def test_a_wrong_password_is_unavailable_and_not_shown(amqp_url: str) -> None:
    publisher = AmqpPublisher(amqp_url.replace(f":{PASSWORD}@", ":s3cret@"))
    with pytest.raises(TransportRefused, match="ACCESS_REFUSED") as caught:
        await publisher.open()
    assert "s3cret" not in str(caught.value)
    (outcome,) = await publish(publisher, message(1, topic="orders"))
    await publisher.close()
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "AUTHENTICATION_FAILED"


async def test_a_broker_that_does_not_answer_costs_no_more_than_the_time_out(amqp_server: Rabbit) -> None:
    url = amqp_server.url
    await make_queue(url, "orders")
    async with publishing(f"{url}?queue=orders") as publisher:
        assert kinds(await publish(publisher, message(0, "a"))) == ["Sent"]
        with amqp_server.silent():
            begin = monotonic()
            (under_way,) = await publish(publisher, message(1, "a"), timeout=SHORT)
            (later,) = await publish(publisher, message(2, "b"), timeout=SHORT)
            assert monotonic() - begin < 2 * SHORT.total_seconds() + 0.5
        assert isinstance(under_way, Failed), "it was confirming a moment ago, so it was tried"
        assert under_way.unknown
        assert isinstance(later, Unavailable), "it was asked first, and nothing was tried"
        assert kinds(await publish(publisher, message(1, "a"))) == ["Sent"]
    assert set(map(str, await arrived(url, "orders"))) >= {"0", "1"}


async def test_a_broker_short_of_memory_is_unavailable_in_time_and_no_message_pays_for_it(amqp_server: Rabbit) -> None:
    url = amqp_server.url
    await make_queue(url, "orders")
    async with publishing(f"{url}?queue=orders") as publisher:
        await asyncio.to_thread(amqp_server.ctl, "set_vm_memory_high_watermark", "absolute", "1MB")
        await asyncio.sleep(1.5)  # the alarm, and a line that is not fresh any more
        begin = monotonic()
        outcomes = await publish(publisher, message(1, "a"), message(2), timeout=SHORT)
        assert monotonic() - begin < SHORT.total_seconds()
        assert kinds(outcomes) == ["Unavailable"] * 2
        await asyncio.to_thread(amqp_server.ctl, "set_vm_memory_high_watermark", "absolute", "1GB")
        assert kinds(await publish(publisher, message(3, "a"))) == ["Sent"]
    assert await arrived(url, "orders") == [3]


async def test_a_broker_that_blocks_in_the_middle_is_unavailable_and_does_not_hang_beyond_the_time_out(
    amqp_server: Rabbit,
) -> None:
    url = amqp_server.url
    await make_queue(url, "orders")
    async with publishing(f"{url}?queue=orders") as publisher:
        assert kinds(await publish(publisher, message(0))) == ["Sent"]
        blocking = asyncio.create_task(
            asyncio.to_thread(amqp_server.ctl, "set_vm_memory_high_watermark", "absolute", "1MB")
        )
        number, stopped = 0, None
        while stopped is None:
            assert number < 10_000
            begin = monotonic()
            outcomes = await publish(publisher, *(message(number, f"k{n}") for n in range(50)), timeout=SHORT)
            assert monotonic() - begin < SHORT.total_seconds()
            number += 1
            stopped = next((outcome for outcome in outcomes if not isinstance(outcome, Sent)), None)
        await blocking
        assert isinstance(stopped, Unavailable), f"a broker without memory is no message's fault: {stopped}"
        assert stopped.code == "BLOCKED"


async def test_heartbeats_go_on_while_it_is_busy_and_while_it_is_idle(amqp_url: str, queue: str) -> None:
    """RabbitMQ ends a connection after two seconds without one."""
    async with publishing(f"{amqp_url}?queue={queue}&heartbeat=1") as publisher:
        lines = set()
        begin = monotonic()
        while monotonic() - begin < 4:
            outcomes = await publish(publisher, *(message(n) for n in range(500)))
            assert set(kinds(outcomes)) == {"Sent"}
            lines |= {id(line.connection) for line in publisher._idle}
        await asyncio.sleep(4)
        assert kinds(await publish(publisher, message(0))) == ["Sent"]
        lines |= {id(line.connection) for line in publisher._idle}
    assert len(lines) == 1, "the first connection served to the end"


# ── rights ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_whoever_may_only_write_to_the_exchange_can_publish(amqp_server: Rabbit) -> None:
    """It may not even ask whether somebody is there by publishing to nowhere."""
    url = amqp_server.url
    await make_exchange(url, "orders")
    await make_queue(url, "billing")
    await bind(url, "billing", "orders")
    await asyncio.to_thread(amqp_server.ctl, "add_user", "relay", "pw")
    await asyncio.to_thread(amqp_server.ctl, "set_permissions", "relay", "^$", "^orders$", "^$")
    narrow = url.replace(f"{USER}:{PASSWORD}", "relay:pw")
    async with publishing(f"{narrow}?exchange=orders") as publisher:
        assert kinds(await publish(publisher, message(1))) == ["Sent"]
    await asyncio.to_thread(amqp_server.ctl, "set_permissions", "relay", "^$", "^$", "^$")
    async with publishing(f"{narrow}?exchange=orders") as publisher:
        (outcome,) = await publish(publisher, message(2))
    assert isinstance(outcome, Unavailable), outcome
    assert outcome.code == "NOT_AUTHORIZED"
    assert await arrived(url, "billing") == [1]


async def test_what_was_under_way_is_answered_before_it_closes(amqp_url: str, queue: str) -> None:
    publisher = AmqpPublisher(f"{amqp_url}?queue={queue}")
    await publisher.open()
    under_way = asyncio.create_task(publish(publisher, *(message(n) for n in range(300))))
    await asyncio.sleep(0.02)
    await publisher.close()
    assert set(kinds(await under_way)) == {"Sent"}
    (outcome,) = await publish(publisher, message(1))
    assert isinstance(outcome, Unavailable)


async def test_many_batches_at_once_keep_every_key_in_order(amqp_url: str, queue: str) -> None:
    async with publishing(f"{amqp_url}?queue={queue}") as publisher:
        batches = [[message([name, n], f"{name}{n % 3}") for n in range(60)] for name in "abcdef"]
        answers = await asyncio.gather(*(publish(publisher, *batch) for batch in batches))
    assert {kind for outcomes in answers for kind in kinds(outcomes)} == {"Sent"}
    there = await arrived(amqp_url, queue)
    for name in "abcdef":
        for rest in range(3):
            mine = [pair[1] for pair in there if isinstance(pair, list) and pair[0] == name and pair[1] % 3 == rest]
            assert mine == list(range(rest, 60, 3))
