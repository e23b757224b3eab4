"""A real relay carries to SQS while the way there is cut, or while no answer comes back; and receivers take from it while one
of them is killed. Nothing is lost; in a FIFO queue every key's first deliveries are in order, nothing is there twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.commands import POSTROOM, Popen
from tests.conformance.test_sqs_consumer import vanished
from tests.servers import sqs
from tests.servers.gate import Gate
from tests.servers.queues import everything_in, fresh_queue, with_queue

from postroom.contracts.ops import Query, Record
from postroom.contracts.transport import Envelope
from postroom.errors import TransportUnavailable
from postroom.message import Message
from postroom.stores import open_store
from postroom.testing.waiting import until
from postroom.transports.sqs import SqsConsumer, SqsPublisher
from postroom.transports.sqs.decoding import event_in

KEYS, EACH = 20, 15
BATCH, CONCURRENCY = 10, 4
IN_FLIGHT = BATCH * CONCURRENCY
PACE = ["--batch", str(BATCH), "--poll", "50ms", "--backoff", "0.2", "--concurrency", str(CONCURRENCY)]
TIMES = ["--lease", "30s", "--send-timeout", "2s"]
AWAY = "the broker is away"

pytestmark = pytest.mark.timeout(180)


@dataclass
class Post:
    """A store full of messages, the queue that they go to, and the way there."""

    store: str
    url: str
    queue: str
    gate: Gate
    folder: Path

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    @contextmanager
    def relay(self, queue: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        to = with_queue(sqs.url_at(self.gate.port), queue or self.queue)
        with (self.folder / "said").open("wb") as said:
            relay = Popen(
                [*POSTROOM, "relay", "--store", self.store, "--to", to, "--drain", *PACE, *TIMES],
                cwd=self.folder,
                env=dict(os.environ),
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        try:
            yield relay
        finally:
            relay.kill()
            relay.wait()

    def records(self) -> list[Record]:
        async def find() -> list[Record]:
            async with open_store(self.store) as store:
                return list(await store.ops.find(Query()))

        return asyncio.run(find())

    def published(self) -> int:
        return sum(record.status == "published" for record in self.records())

    def delivered(self) -> list[tuple[str | None, object]]:
        found = [event_in(each["Body"], {})[0] for each in everything_in(self.url, self.queue)]
        return [(message.key, message.data) for message in found]

    def check(self) -> None:
        there = self.delivered()
        assert set(there) == put_there(), "a message was lost, or is a ghost"
        if self.queue.endswith(".fifo"):
            assert len(there) == len(set(there)), "a message stands there twice"
            check_order(there)
        assert {record.status for record in self.records()} == {"published"}


def put_there() -> set[tuple[str | None, object]]:
    return {(f"k{key}", number) for key in range(KEYS) for number in range(EACH)}


def check_order(there: list[tuple[str | None, object]]) -> None:
    for key in range(KEYS):
        first = list(dict.fromkeys(number for name, number in there if name == f"k{key}"))
        assert first == list(range(EACH)), f"the order of k{key} is broken: {first}"


def messages() -> list[list[Message]]:
    return [[Message("order.paid", key=f"k{key}", data=number) for key in range(KEYS)] for number in range(EACH)]


@pytest.fixture(params=["fifo", "standard"])
def post(request: pytest.FixtureRequest, sqs_url: str, tmp_path: Path, sqs_gate: Gate) -> Iterator[Post]:
    database = f"sqlite:///{tmp_path / 'post.db'}"

    async def fill() -> None:
        async with open_store(database) as store:
            await store.schema.migrate()
            for some in messages():
                await store.outbox.put(some)

    asyncio.run(fill())
    sqs_gate.delay = 0.1
    with fresh_queue(sqs_url, fifo=request.param == "fifo") as queue:
        yield Post(database, sqs_url, queue, sqs_gate, tmp_path)


def test_a_way_that_is_cut_under_load_and_opened_again_loses_nothing(post: Post) -> None:
    with post.relay() as relay:
        until(lambda: post.published() >= IN_FLIGHT, "the relay is at work")
        post.gate.cut()
        assert KEYS * EACH - post.published() > IN_FLIGHT, "the cut came too late to hurt"
        until(lambda: AWAY in post.said, "the relay sees that SQS is gone")
        post.gate.open()
        assert relay.wait(100) == 0, post.said
    post.check()
    again = [record for record in post.records() if record.attempts > 1]
    assert len(again) <= IN_FLIGHT, "more attempts were spent than messages were in flight"
    assert "Traceback" not in post.said


def test_answers_that_are_lost_under_load_lose_nothing(post: Post) -> None:
    with post.relay() as relay:
        until(lambda: post.published() >= IN_FLIGHT, "the relay is at work")
        with post.gate.silent():
            assert KEYS * EACH - post.published() > IN_FLIGHT, "the silence came too late to hurt"
            until(
                lambda: any(record.last_error_code == "TIMEOUT" for record in post.records()),
                "an answer was waited for in vain",
            )
        assert relay.wait(100) == 0, post.said
    post.check()
    assert "Traceback" not in post.said


def test_a_typo_in_the_queue_is_told_at_the_start_in_one_sentence(post: Post) -> None:
    with post.relay(queue="ordrs.fifo") as relay:
        assert relay.wait(60) == 1, post.said
    assert "has no such queue" in post.said
    assert "Traceback" not in post.said
    assert {(record.status, record.attempts) for record in post.records()} == {("pending", 0)}


def test_a_receiver_killed_and_a_way_cut_while_messages_come_lose_nothing(sqs_url: str, sqs_gate: Gate) -> None:
    with fresh_queue(sqs_url) as queue:
        came = asyncio.run(
            _receive_all(with_queue(sqs_url, queue), with_queue(sqs.url_at(sqs_gate.port), queue), sqs_gate)
        )
    assert set(came) == put_there()
    check_order(came)


async def _receive_all(directly: str, through_the_gate: str, gate: Gate) -> list[tuple[str | None, object]]:
    """What two receivers handled, in that order: the first is killed in the middle, the second loses its way for a while."""
    came: list[tuple[str | None, object]] = []

    async def handle(consumer: SqsConsumer, until: int) -> None:
        while len(set(came)) < until:
            try:
                deliveries = await consumer.receive(7, wait=timedelta(seconds=0.5))
            except TransportUnavailable:
                await asyncio.sleep(0.2)
                continue
            for delivery in deliveries:
                if len(set(came)) < until and not consumer.is_lost(delivery):
                    came.append((delivery.message.key, delivery.message.data))
                    await consumer.ack([delivery])

    async def publish() -> None:
        publisher = SqsPublisher(directly)
        await publisher.open()
        for some in messages():
            await publisher.publish([Envelope(message) for message in some], timeout=timedelta(seconds=20))
        await publisher.close()

    async def strike() -> None:
        while len(came) < KEYS * EACH // 2:
            await asyncio.sleep(0.01)
        gate.cut()
        await asyncio.sleep(1)
        gate.open()

    killed, second = SqsConsumer(directly), SqsConsumer(through_the_gate)
    await killed.open()
    await second.open()
    publishing = asyncio.create_task(publish())
    await handle(killed, KEYS * EACH // 4)
    await vanished(killed)
    async with asyncio.timeout(100), asyncio.TaskGroup() as striking:
        striking.create_task(strike())
        await handle(second, KEYS * EACH)
    await publishing
    await second.close()
    return came


def test_the_checker_catches_what_it_is_there_for() -> None:
    in_order: list[tuple[str | None, object]] = [(f"k{key}", number) for number in range(EACH) for key in range(KEYS)]
    check_order([*in_order, in_order[0]])
    with pytest.raises(AssertionError, match="the order of k0 is broken"):
        check_order([in_order[KEYS], *in_order[:KEYS], *in_order[KEYS + 1 :]])
