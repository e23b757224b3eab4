"""A real relay carries to a real Valkey that is killed under it, or is away when it starts; and receivers that are killed
take it from there. Nothing is lost, every key's first deliveries are in order, nothing is dead, and a server that is away
costs no message an attempt."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scenarios.test_kafka import check_deliveries
from tests.servers.redis_streams import messages_in
from tests.servers.valkeyd import Valkey

from postroom.message import Message
from postroom.store import Query, Record
from postroom.stores import open_store
from postroom.transport import Envelope, Sent
from postroom.transports.redis_streams import RedisPublisher

KEYS, EACH = 40, 60
BATCH, CONCURRENCY = 20, 4
IN_FLIGHT = BATCH * CONCURRENCY
STREAM = "orders"
POSTROOM = [sys.executable, "-m", "postroom"]
PACE = ["--batch", str(BATCH), "--poll", "50ms", "--backoff", "0.2"]
TIMES = ["--lease", "30s", "--send-timeout", "4s"]
AWAY = "the broker is away"

pytestmark = pytest.mark.timeout(240)  # pauses of the relay, on whatever machine this is


@dataclass
class Post:
    """A store full of messages, and the server that they go to."""

    store: str
    server: Valkey
    folder: Path

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    @contextmanager
    def relay(self, concurrency: int = 1) -> Iterator[subprocess.Popen[bytes]]:
        pace = [*PACE, "--concurrency", str(concurrency)]
        to = f"{self.server.url}/{STREAM}"
        with (self.folder / "said").open("wb") as said:
            relay = subprocess.Popen(
                [*POSTROOM, "relay", "--store", self.store, "--to", to, "--drain", *pace, *TIMES],
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
                return list(await store.find(Query()))

        return asyncio.run(find())

    def published(self) -> int:
        async def count() -> int:
            async with open_store(self.store) as store:
                return (await store.counts()).by_status.get("published", 0)

        return asyncio.run(count())

    def check(self) -> None:
        """What stands in the stream against what was put, and what the store says of it."""
        there = messages_in(self.server.url, STREAM)
        check_deliveries([(str(message.key), message.data) for message in there])
        assert {record.status for record in self.records()} == {"published"}


def eventually(true: Callable[[], bool], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not happen in time: {what}"
        time.sleep(0.02)


@pytest.fixture
def post(database: str, tmp_path: Path, redis_server: Valkey) -> Post:
    async def fill() -> None:
        async with open_store(database) as store:
            await store.migrate()
            for number in range(EACH):
                await store.put([Message("order.paid", key=f"k{key}", data=number) for key in range(KEYS)])

    asyncio.run(fill())
    return Post(database, redis_server, tmp_path)


def test_a_server_killed_under_load_and_started_again_loses_nothing(post: Post) -> None:
    with post.relay(concurrency=CONCURRENCY) as relay:
        eventually(lambda: post.published() >= 3 * IN_FLIGHT, "the relay is at work")
        post.server.kill()
        left = KEYS * EACH - post.published()
        assert left > IN_FLIGHT, "the kill came too late to hurt"
        eventually(lambda: AWAY in post.said, "the relay sees that the server is gone")
        post.server.start_again()
        assert relay.wait(100) == 0, post.said
    post.check()
    again = [record for record in post.records() if record.attempts > 1]
    assert len(again) <= IN_FLIGHT, "more attempts were spent than messages were in flight"
    assert "Traceback" not in post.said


def test_a_server_that_is_away_at_the_start_is_waited_for(post: Post) -> None:
    post.server.kill()
    with post.relay() as relay:
        eventually(lambda: AWAY in post.said, "the relay sees that the server is not there")
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
        eventually(lambda: len(lines()) >= number, f"{number} are handled")

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
        eventually(lambda: len(set(lines())) >= count, "the last one handles the rest")
    check_deliveries(lines())
    assert len(lines()) < 2 * count, "more came again than was in hand"


async def fill_stream(url: str) -> None:
    publisher = RedisPublisher(f"{url}/{STREAM}")
    await publisher.open()
    messages = [Message("order.paid", key=f"k{key}", data=number) for number in range(EACH) for key in range(KEYS)]
    outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timedelta(seconds=20))
    await publisher.close()
    assert {type(outcome) for outcome in outcomes} == {Sent}
