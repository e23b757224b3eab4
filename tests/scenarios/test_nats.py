"""A real relay carries to a real NATS that is killed under it, stands still, or is away when it starts: nothing is lost or
doubled, every key is in order, nothing is dead, and a server that is away costs no message an attempt. And receivers that die
while the server is killed have handled every message in the end, each key in order."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scenarios.posts import AWAY, CONCURRENCY, EACH, IN_FLIGHT, KEYS, Post, check_deliveries, fill
from tests.servers.nats_server import NatsServer
from tests.servers.streams import everything_in, fresh_stream

from postroom.contracts.transport import Envelope, Sent
from postroom.errors import TransportUnavailable
from postroom.message import Message
from postroom.testing.waiting import until
from postroom.transports.nats import NatsConsumer, NatsPublisher
from postroom.transports.nats.encoding import message_of

pytestmark = pytest.mark.timeout(240)  # pauses of the relay, on whatever machine this is


@dataclass
class NatsPost(Post):
    """Messages on their way to a stream."""

    server: NatsServer
    stream: str

    def check(self) -> None:
        there = [message_of(each.headers, each.data or b"")[0] for each in everything_in(self.server.url, self.stream)]
        self.check_against([(str(message.key), message.data) for message in there])
        assert len(there) == KEYS * EACH, "what was sent again within the stream's window stands there twice"


@pytest.fixture
def post(database: str, tmp_path: Path, nats_server: NatsServer) -> Iterator[NatsPost]:
    fill(database)
    with fresh_stream(nats_server.url) as stream:
        yield NatsPost(database, tmp_path, f"{nats_server.url}/{stream}?subject={stream}.paid", nats_server, stream)


def test_a_server_killed_under_load_and_started_again_loses_nothing(post: NatsPost) -> None:
    with post.relay(concurrency=CONCURRENCY) as relay:
        until(lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
        post.server.kill()
        left = KEYS * EACH - post.published()
        assert left > IN_FLIGHT, "the kill came too late to hurt"
        until(lambda: AWAY in post.said, "the relay sees that the server is gone")
        post.server.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    post.check_attempts()


def test_a_server_that_stands_still_under_load_loses_nothing(post: NatsPost) -> None:
    with post.relay(concurrency=CONCURRENCY) as relay:
        until(lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
        with post.server.silent():
            assert KEYS * EACH - post.published() > IN_FLIGHT, "it stood still too late to hurt"
            time.sleep(6)  # longer than a send may take
        assert relay.wait(100) == 0, post.said
    post.check()


def test_a_server_that_is_away_at_the_start_is_waited_for(post: NatsPost) -> None:
    post.server.kill()
    with post.relay() as relay:
        until(lambda: AWAY in post.said, "the relay sees that the server is not there")
        assert post.published() == 0
        post.server.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    assert {record.attempts for record in post.records()} == {1}, "an attempt was spent on a server that was away"


def test_a_typo_in_the_stream_is_told_at_the_start_in_one_sentence(post: NatsPost) -> None:
    with post.relay(to=f"{post.server.url}/ORDRS?subject={post.stream}.paid") as relay:
        assert relay.wait(60) == 1, post.said
    assert "There is no stream 'ORDRS'" in post.said
    assert "Traceback" not in post.said
    assert {(record.status, record.attempts) for record in post.records()} == {("pending", 0)}


RECEIVE = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from postroom.errors import TransportUnavailable
from postroom.transports.nats import NatsConsumer

async def main(url, name):
    consumer, log = NatsConsumer(url, group="billing", prefetch=20), Path(name).open("a", buffering=1)
    while True:
        try:
            await consumer.open()
            break
        except TransportUnavailable:
            await asyncio.sleep(0.1)
    while True:
        try:
            deliveries = await consumer.receive(10, wait=timedelta(seconds=1))
        except TransportUnavailable:
            await asyncio.sleep(0.1)
            continue
        for delivery in deliveries:
            if consumer.is_lost(delivery):
                break
            log.write(f"{delivery.message.key} {delivery.message.data}\\n")
            await asyncio.sleep(0.001)
            await consumer.ack([delivery])

asyncio.run(main(*sys.argv[1:]))
"""


def test_receivers_killed_while_the_server_is_killed_too_handle_everything_in_order(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    log = tmp_path / "handled"
    log.touch()

    async def publish(url: str) -> None:
        consumer = NatsConsumer(url, group="billing")
        await consumer.open()
        await consumer.close()
        publisher = NatsPublisher(url)
        await publisher.open()
        batch = [Envelope(Message("t", key=f"k{key}", data=number)) for number in range(EACH) for key in range(KEYS)]
        outcomes = await publisher.publish(batch, timeout=timedelta(seconds=60))
        assert {type(each) for each in outcomes} == {Sent}
        await publisher.close()

    def handled() -> list[tuple[str, int]]:
        lines = [line.split() for line in log.read_text().splitlines()]
        return [(key, int(number)) for key, number in lines]

    with fresh_stream(nats_server.url) as stream:
        url = f"{nats_server.url}/{stream}?subject={stream}.paid&ack_wait=2s"
        asyncio.run(publish(url))
        receivers = [_receiver(url, log) for _ in range(2)]
        try:
            for enough in (300, 800, 1_300):
                until(lambda enough=enough: len(handled()) >= enough, f"{enough} are handled")  # type: ignore[misc]
                receivers[0].kill()
                receivers.pop(0).wait()
                receivers.append(_receiver(url, log))
                if enough == 800:
                    nats_server.kill()
                    nats_server.start_again()
            until(lambda: len(set(handled())) == KEYS * EACH, "everything is handled", seconds=90)
        finally:
            for receiver in receivers:
                receiver.kill()
                receiver.wait()
    check_deliveries(handled())


def _receiver(url: str, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RECEIVE, url, str(log)], env=dict(os.environ))


def test_the_library_is_quiet(nats_server: NatsServer, capfd: pytest.CaptureFixture[str]) -> None:
    """A server that goes is our business to tell of, in one sentence; not the library's, with a traceback."""

    async def see_it_go() -> None:
        consumer = NatsConsumer(f"{nats_server.url}/{stream}")
        await consumer.open()
        nats_server.kill()
        for _ in range(3):
            with suppress(TransportUnavailable):
                await consumer.receive(1, wait=timedelta(seconds=1))
        await consumer.close()

    with fresh_stream(nats_server.url) as stream:
        asyncio.run(see_it_go())
    assert "encountered error" not in capfd.readouterr().err
