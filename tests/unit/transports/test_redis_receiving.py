"""Receiving from a real server: takeovers, zombies, refusals, lost groups; and nothing is lost, whoever dies when."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.servers.ports import free_port
from tests.servers.redis_streams import client_of
from tests.servers.valkeyd import Valkey

from postroom.contracts.transport import Envelope, Sent
from postroom.errors import ConfigError, TransportError, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts.consumer import data_of, receive
from postroom.transports.redis_streams import RedisConsumer, RedisPublisher
from postroom.transports.redis_streams.pending import HEIR

HOLD = 1.5
QUIET = timedelta(seconds=0.5)
AT_ONCE = timedelta(seconds=1)


class Post:
    """A stream, and its receivers."""

    def __init__(self, url: str, stream: str) -> None:
        self.url, self.stream = url, stream
        self.receivers: list[RedisConsumer] = []

    async def receiver(self, settings: str = "", **more: Any) -> RedisConsumer:
        receiver = RedisConsumer(f"{self.url}/{self.stream}?{settings or f'hold={HOLD}'}", group="billing", **more)
        await receiver.open()
        self.receivers.append(receiver)
        return receiver

    async def publish(self, *messages: Message) -> None:
        publisher = RedisPublisher(f"{self.url}/{self.stream}")
        await publisher.open()
        outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=10))
        await publisher.close()
        assert {type(outcome) for outcome in outcomes} == {Sent}

    async def numbers(self, *numbers: int, key: str | None = "a") -> None:
        await self.publish(*(Message("order.paid", key=key, data=number) for number in numbers))

    async def do(self, *words: str | int | bytes) -> Any:
        def say() -> Any:
            with client_of(self.url) as client:
                return client.execute_command(*words)  # type: ignore[no-untyped-call]

        return await asyncio.to_thread(say)

    async def names(self) -> set[str]:
        """Who is known in the group."""
        consumers = await self.do("XINFO", "CONSUMERS", self.stream, "billing")
        return {each[1].decode() for each in consumers}

    async def pending(self) -> int:
        summary: dict[str, int] = await self.do("XPENDING", self.stream, "billing")
        return summary["pending"]


@pytest.fixture
async def post(redis_url: str, redis_stream: str) -> AsyncIterator[Post]:
    post = Post(redis_url, redis_stream)
    yield post
    for receiver in post.receivers:
        await receiver.close()


async def die(receiver: RedisConsumer) -> None:
    """As a process that is killed: its connections go, and nobody prolongs anything."""
    life, receiver._receiver = receiver._receiver, None
    assert life is not None
    await life.close()
    receiver._is_open = False


async def fall_asleep(receiver: RedisConsumer) -> None:
    """As a process that is stopped: its connections stay, and nobody prolongs anything."""
    assert receiver._receiver is not None
    await receiver._receiver._stop_beating()


async def wake_up(receiver: RedisConsumer) -> None:
    """Its heart beats at once."""
    life = receiver._receiver
    assert life is not None
    life._beating = asyncio.create_task(life._beat())
    await asyncio.sleep(HOLD / 3 + 0.2)


# ── taking over ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_living_receiver_holds_is_never_taken_from_it(post: Post) -> None:
    one = await post.receiver()
    await post.numbers(1)
    held = await receive(one, 1)
    other = await post.receiver()
    assert await receive(other, 1, patience=timedelta(seconds=2.5 * HOLD)) == []
    assert not one.is_lost(held[0])
    await one.ack(held)
    assert await post.pending() == 0


async def test_several_share_what_is_new_once_each_has_seen_the_other_alive(post: Post) -> None:
    one = await post.receiver()
    await post.numbers(1)
    await receive(one, 1)
    other = await post.receiver()
    await post.numbers(2)
    assert data_of(await receive(other, 1, patience=timedelta(seconds=3 * HOLD))) == [2]


async def test_one_that_was_asleep_for_too_long_sees_that_it_lost_all_and_steals_nothing_back(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    zombie = await post.receiver()
    await post.numbers(1, 2)
    held = await receive(zombie, 2)
    await fall_asleep(zombie)
    other = await post.receiver()
    taken = await receive(other, 2)
    assert data_of(taken) == [1, 2]
    with caplog.at_level(logging.WARNING, "postroom.redis"):
        await wake_up(zombie)
    assert "2 messages were taken over by others" in caplog.text
    assert [zombie.is_lost(each) for each in held] == [True, True]
    assert [other.is_lost(each) for each in taken] == [False, False]
    await zombie.ack(held)
    assert await post.pending() == 2, "what others hold is theirs to acknowledge"
    await other.ack(taken)
    assert await post.pending() == 0


async def test_a_refused_message_that_others_took_meanwhile_does_not_come_again(post: Post) -> None:
    zombie = await post.receiver()
    await post.numbers(1)
    (refused,) = await receive(zombie, 1)
    await zombie.nack(refused, delay=timedelta(seconds=HOLD + 1))
    await fall_asleep(zombie)
    other = await post.receiver()
    (taken,) = await receive(other, 1)
    assert await receive(zombie, 1, patience=timedelta(seconds=1.5)) == []
    assert len(zombie._in_flight) == 0
    assert not other.is_lost(taken)


async def test_nothing_new_is_read_before_the_dead_ones_messages_were_taken(post: Post) -> None:
    dead = await post.receiver()
    await post.numbers(1, 2, 3)
    await receive(dead, 3)
    await die(dead)
    await post.numbers(4, 5)
    heir = await post.receiver()
    seen: list[object] = []
    while len(seen) < 5:  # one by one: most of what the dead one had is still not taken
        deliveries = await receive(heir, 1)
        seen += data_of(deliveries)
        await heir.ack(deliveries)
    assert seen == [1, 2, 3, 4, 5]


async def test_a_dead_ones_messages_are_found_behind_many_of_a_living_one(post: Post) -> None:
    living = await post.receiver()
    await post.numbers(*range(400), key=None)
    assert len(await receive(living, 400)) == 400
    dead = await post.receiver()
    await post.numbers(400)
    assert data_of(await receive(dead, 1, patience=timedelta(seconds=3 * HOLD))) == [400]
    await die(dead)
    heir = await post.receiver(prefetch=3)
    assert data_of(await receive(heir, 1)) == [400]


async def test_the_same_name_has_what_it_had_at_once(post: Post) -> None:
    first = await post.receiver("name=pod-1&hold=300")
    await post.numbers(1, 2)
    await receive(first, 2)
    await die(first)
    second = await post.receiver("name=pod-1&hold=300")
    deliveries = await receive(second, 2, patience=AT_ONCE)
    assert data_of(deliveries) == [1, 2]
    assert [each.redelivered for each in deliveries] == [1, 1]


async def test_whoever_leaves_gives_back_even_what_it_never_saw_and_leaves_no_name(post: Post) -> None:
    leaving = await post.receiver("name=leaving&hold=300")
    await post.numbers(1, 2)
    # The answer to this one was lost on its way.
    await post.do("XREADGROUP", "GROUP", "billing", "leaving", "COUNT", 1, "STREAMS", post.stream, ">")
    assert data_of(await receive(leaving, 1)) == [2]
    await leaving.close()
    assert "leaving" not in await post.names()
    assert data_of(await receive(await post.receiver("hold=300"), 2, patience=AT_ONCE)) == [1, 2]


async def test_what_the_server_holds_for_us_and_never_came_is_asked_for_again(post: Post) -> None:
    receiver = await post.receiver(f"name=me&hold={HOLD}")
    await post.numbers(1)
    await post.do("XREADGROUP", "GROUP", "billing", "me", "COUNT", 1, "STREAMS", post.stream, ">")
    assert data_of(await receive(receiver, 1)) == [1]


async def test_leaving_in_the_middle_of_a_wait_takes_no_second(post: Post) -> None:
    receiver = await post.receiver("hold=300")
    waiting = asyncio.create_task(receiver.receive(1, wait=timedelta(seconds=30)))
    await asyncio.sleep(0.3)
    begin = time.monotonic()
    await receiver.close()
    assert list(await waiting) == []
    assert time.monotonic() - begin < 0.5


async def test_a_receiver_with_no_more_rights_than_it_needs_receives_and_leaves(redis_server: Valkey) -> None:
    post = Post(redis_server.url, "orders")
    rights = "+eval +xreadgroup +xack +xclaim +xautoclaim +xpending +xinfo|consumers +xgroup|create +xgroup|delconsumer"
    await post.do("ACL", "SETUSER", "billing", "on", ">secret", "~orders", *rights.split())
    receiver = RedisConsumer(
        redis_server.url.replace("redis://", "redis://billing:secret@") + "/orders", group="billing"
    )
    await receiver.open()
    await post.numbers(1, 2)
    one, _ = await receive(receiver, 2)
    await receiver.ack([one])
    waiting = asyncio.create_task(receiver.receive(1, wait=timedelta(seconds=20)))
    await asyncio.sleep(0.2)
    await receiver.close()
    assert list(await waiting) == []
    assert await post.pending() == 1
    assert await post.names() == {HEIR}


# ── refusing, and counting ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_refused_message_holds_up_its_key_and_no_other(post: Post) -> None:
    receiver = await post.receiver()
    await post.numbers(1)
    (refused,) = await receive(receiver, 1)
    await receiver.nack(refused, delay=timedelta(seconds=1))
    await post.numbers(2, 3)
    await post.numbers(10, 11, key="b")
    assert data_of(await receive(receiver, 2, patience=QUIET)) == [10, 11]
    assert data_of(await receive(receiver, 3)) == [1, 2, 3]


async def test_the_server_counts_every_delivery_whoever_it_was_to(post: Post) -> None:
    receiver = await post.receiver()
    await post.numbers(1)
    for number in range(3):
        (delivery,) = await receive(receiver, 1)
        assert delivery.redelivered == number
        await receiver.nack(delivery)
    await receiver.close()
    other = await post.receiver()
    (delivery,) = await receive(other, 1)
    assert delivery.redelivered == 3
    await die(other)
    (delivery,) = await receive(await post.receiver(), 1)
    assert delivery.redelivered == 4


async def test_holding_a_message_counts_as_no_delivery(post: Post) -> None:
    receiver = await post.receiver()
    await post.numbers(1)
    (held,) = await receive(receiver, 1)
    await receive(receiver, 1, patience=timedelta(seconds=1.2 * HOLD))
    await receiver.nack(held)
    assert [each.redelivered for each in await receive(receiver, 1)] == [1]


async def test_waiting_for_a_refused_message_burns_no_time_of_the_processor(post: Post) -> None:
    receiver = await post.receiver(prefetch=2)
    await post.numbers(1, 2, 3, 4)
    first, second = await receive(receiver, 2)
    await receiver.nack(second, delay=timedelta(seconds=30))
    await receiver.nack(first, delay=timedelta(seconds=30))
    begin = time.process_time()
    assert await receive(receiver, 1, patience=timedelta(seconds=2)) == []
    assert time.process_time() - begin < 0.5


async def test_what_was_acknowledged_stays_in_the_stream_unless_the_url_says_otherwise(post: Post) -> None:
    receiver = await post.receiver()
    await post.numbers(1, 2)
    one, two = await receive(receiver, 2)
    await receiver.ack([one])
    await receiver.terminate(two)
    assert await post.do("XLEN", post.stream) == 2
    await receiver.close()
    deleting = await post.receiver(f"hold={HOLD}&delete=on")
    await post.numbers(3)
    await deleting.ack(await receive(deleting, 1))
    assert await post.do("XLEN", post.stream) == 2


async def test_many_are_acknowledged_in_one_go(post: Post) -> None:
    receiver = await post.receiver(prefetch=5_000)
    await post.numbers(*range(3_000))
    deliveries = await receive(receiver, 3_000)
    assert data_of(deliveries) == list(range(3_000))
    await receiver.ack(deliveries)
    assert await post.pending() == 0


async def test_what_was_trimmed_before_it_was_handled_is_warned_of(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    dead = await post.receiver()
    await post.numbers(1, 2, 3)
    await receive(dead, 3)
    await die(dead)
    await post.do("XTRIM", post.stream, "MAXLEN", 1)
    with caplog.at_level(logging.WARNING, "postroom.redis"):
        assert data_of(await receive(await post.receiver(), 1)) == [3]
    assert "2 messages were trimmed before they were handled" in caplog.text


# ── trouble ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_wait_that_was_cancelled_loses_nothing_and_costs_no_connection(post: Post) -> None:
    receiver = await post.receiver()
    await post.numbers(0)
    (held,) = await receive(receiver, 1)
    for number in range(1, 20):
        waiting = asyncio.create_task(receiver.receive(1, wait=timedelta(seconds=5)))
        await asyncio.sleep(0.003 * number)
        waiting.cancel()
        await asyncio.wait({waiting})
    await post.numbers(*range(1, 30))
    assert data_of(await receive(receiver, 29)) == list(range(1, 30))
    assert not receiver.is_lost(held)


async def test_whoever_is_cancelled_in_the_middle_of_a_question_costs_no_connection(redis_server: Valkey) -> None:
    post = Post(redis_server.url, "orders")
    receiver = await post.receiver("hold=30")
    await post.numbers(0, 1)
    held, done = await receive(receiver, 2)
    await asyncio.sleep(1.1)  # it is time to look for what others left
    with redis_server.silent():
        asking: list[asyncio.Task[Any]] = [
            asyncio.create_task(receiver.receive(1, wait=timedelta(seconds=5))),
            asyncio.create_task(receiver.ack([done])),
        ]
        await asyncio.sleep(0.3)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
    await post.numbers(2)
    assert data_of(await receive(receiver, 1)) == [2]
    assert not receiver.is_lost(held)
    assert await post.pending() == 2
    await receiver.close()


async def test_a_group_that_is_gone_is_one_clear_error_until_it_is_opened_again(redis_server: Valkey) -> None:
    post = Post(redis_server.url, "orders")
    receiver = await post.receiver()
    await post.numbers(1)
    (held,) = await receive(receiver, 1)
    await post.do("FLUSHALL")
    for _ in range(3):
        with pytest.raises(
            TransportError, match=r"The group 'billing' of redis://.* is gone: the server lost"
        ) as caught:
            await receive(receiver, 1, patience=timedelta(seconds=5))
        assert not isinstance(caught.value, TransportUnavailable)
    assert receiver.is_lost(held)
    await receiver.ack([held])
    await receiver.open()
    await post.numbers(2)
    assert data_of(await receive(receiver, 1)) == [2]
    await receiver.close()


async def test_a_silent_server_is_given_up_and_found_again(
    redis_server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.transports.redis_streams.receiver.GRACE_SECONDS", 0.5)
    post = Post(redis_server.url, "orders")
    receiver = await post.receiver()
    await post.numbers(1)
    (held,) = await receive(receiver, 1)
    with redis_server.silent(), pytest.raises(TransportUnavailable, match="no answer in time"):
        await receiver.receive(1, wait=timedelta(seconds=20))
    assert receiver.is_lost(held)
    assert data_of(await receive(receiver, 1)) == [1]
    await receiver.close()


async def test_a_server_that_became_a_replica_is_left_and_nothing_is_lost(redis_server: Valkey) -> None:
    post = Post(redis_server.url, "orders")
    receiver = await post.receiver()
    await post.numbers(1)
    (held,) = await receive(receiver, 1)
    waiting = asyncio.create_task(receiver.receive(1, wait=timedelta(seconds=20)))
    await asyncio.sleep(0.2)
    await post.do("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(TransportUnavailable):
        await waiting
    assert receiver.is_lost(held)
    await post.do("REPLICAOF", "NO", "ONE")
    await post.numbers(2)
    assert data_of(await receive(receiver, 2)) == [1, 2]
    await receiver.close()


async def test_opening_twice_is_opening_once(post: Post) -> None:
    receiver = await post.receiver()
    await post.numbers(1)
    (held,) = await receive(receiver, 1)
    await receiver.open()
    assert not receiver.is_lost(held)


async def test_what_comes_while_it_closes_is_not_in_flight_when_it_is_opened_again(post: Post) -> None:
    """Leaving gives it back with all else: others may have it by then."""
    receiver, other = await post.receiver("hold=300"), await post.receiver("hold=300")
    await post.numbers(1)
    (late,) = await receive(receiver, 1)
    await receiver.close()
    receiver._in_flight.arrive(late)  # as a read does whose answer was on its way
    (taken,) = await receive(other, 1)
    await receiver.open()
    assert await receive(receiver, 1, patience=QUIET) == []
    await other.ack([taken])


async def test_what_cannot_be_received_from_is_told_when_it_is_opened(redis_url: str, redis_stream: str) -> None:
    with pytest.raises(ConfigError, match="is not a stream to receive from"):
        await RedisConsumer(f"{redis_url}/{redis_stream}?create=off").open()
    post = Post(redis_url, redis_stream)
    await post.do("SET", redis_stream, "text")
    with pytest.raises(ConfigError, match="is not a stream to receive from"):
        await RedisConsumer(f"{redis_url}/{redis_stream}").open()
    with pytest.raises(ConfigError, match="names no stream to receive from"):
        RedisConsumer(redis_url)
    with pytest.raises(TransportUnavailable, match="No Redis to receive from at redis://127"):
        await RedisConsumer("redis://127.0.0.1:1/orders").open()
    with pytest.raises(TransportError, match="not open"):
        await RedisConsumer("redis://127.0.0.1:1/orders").receive(1, wait=QUIET)


async def test_the_replies_are_read_by_the_protocol_that_is_pinned(post: Post) -> None:
    receiver = await post.receiver()
    assert receiver._receiver is not None
    (hello,) = await receiver._receiver.control.ask(["HELLO"], seconds=5)
    assert hello[hello.index(b"proto") + 1] == 2
