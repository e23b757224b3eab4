"""A real relay carries to a real Valkey that is killed under it, or is away when it starts; and receivers that are killed
take it from there. Nothing is lost, every key's first deliveries are in order, nothing is dead, and a server that is away
costs no message an attempt."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scenarios.posts import AWAY, CONCURRENCY, EACH, IN_FLIGHT, KEYS, Post, check_deliveries, fill
from tests.servers.redis_streams import messages_in
from tests.servers.valkeyd import Valkey

from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.testing.waiting import until
from postroom.transports.redis_streams import RedisPublisher

STREAM = "orders"

pytestmark = pytest.mark.timeout(240)  # pauses of the relay, on whatever machine this is


@dataclass
class RedisPost(Post):
    """Messages on their way to a stream."""

    server: Valkey

    def check(self) -> None:
        there = messages_in(self.server.url, STREAM)
        self.check_against([(str(message.key), message.data) for message in there])


@pytest.fixture
def post(database: str, tmp_path: Path, redis_server: Valkey) -> RedisPost:
    fill(database)
    return RedisPost(database, tmp_path, f"{redis_server.url}/{STREAM}", redis_server)


def test_a_server_killed_under_load_and_started_again_loses_nothing(post: RedisPost) -> None:
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


def test_a_server_that_is_away_at_the_start_is_waited_for(post: RedisPost) -> None:
    post.server.kill()
    with post.relay() as relay:
        until(lambda: AWAY in post.said, "the relay sees that the server is not there")
        assert post.published() == 0
        post.server.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    assert {record.attempts for record in post.records()} == {1}, "an attempt was spent on a server that was away"


# ── the receiving side ─────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def receiver(url: str, written: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that is killed in the end."""
    program = [sys.executable, "-m", "tests.scenarios.redis_receiver", f"{url}/{STREAM}?hold=1", os.fspath(written)]
    process = subprocess.Popen(program, cwd=Path(__file__).parents[2], env=dict(os.environ))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_receivers_killed_one_after_the_other_lose_nothing_and_keep_every_key_in_order(
    redis_server: Valkey, tmp_path: Path
) -> None:
    asyncio.run(fill_stream(redis_server.url))
    written = tmp_path / "written"
    written.touch()
    count = KEYS * EACH

    def lines() -> list[tuple[str, int]]:
        whole = written.read_text().rpartition("\n")[0].splitlines()
        return [(key, int(number)) for key, number in map(str.split, whole)]

    def go_on_until(number: int) -> None:
        until(lambda: len(lines()) >= number, f"{number} are handled")

    for share in (1, 2, 3):
        with receiver(redis_server.url, written) as process:
            go_on_until(share * count // 5)
            if share == 2:  # the server dies as well
                redis_server.kill()
                redis_server.start_again()
                go_on_until(len(lines()) + 100)
            assert process.poll() is None
    assert len(set(lines())) < count, "the kills came too late to hurt"
    with receiver(redis_server.url, written):
        until(lambda: len(set(lines())) >= count, "the last one handles the rest")
    check_deliveries(lines())
    assert len(lines()) < 2 * count, "more came again than was in hand"


async def fill_stream(url: str) -> None:
    publisher = RedisPublisher(f"{url}/{STREAM}")
    await publisher.open()
    messages = [Message("order.paid", key=f"k{key}", data=number) for number in range(EACH) for key in range(KEYS)]
    outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=20))
    await publisher.close()
    assert {type(outcome) for outcome in outcomes} == {Sent}
