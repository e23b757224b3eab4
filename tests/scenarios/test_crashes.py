"""A relay is killed, or stopped for longer than its lease, at every point where it hurts: nothing is lost, nothing that
was not in flight comes twice, and every key's first deliveries are in order. Real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from postroom.failpoints import POINTS
from postroom.message import Message
from postroom.store import Query, Record, Store
from postroom.stores import open_store

KEYS, EACH = 6, 8
HANDLER = """
import os, time

def deliver(message):
    time.sleep(float(os.environ.get("HANDLER_SECONDS", "0")))
    with open("journal", "a") as journal:
        journal.write(f"{message.key} {message.data}\\n")
        journal.flush()
        os.fsync(journal.fileno())
"""
POSTROOM = [sys.executable, "-m", "postroom"]
QUICK = ["--lease", "2s", "--send-timeout", "900ms", "--poll", "50ms", "--backoff", "0.1", "--batch", "5"]


@dataclass
class Post:
    """A store with messages in it, and what was delivered."""

    url: str
    folder: Path

    def relay(self, *, failpoint: str | None = None, handler_seconds: float = 0) -> subprocess.Popen[str]:
        env = {**os.environ, "HANDLER_SECONDS": str(handler_seconds)}
        if failpoint:
            env["POSTROOM_FAILPOINT"] = failpoint
        return subprocess.Popen(
            [*POSTROOM, "relay", "--store", self.url, "--to", "local://handler:deliver", "--drain", *QUICK],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> None:
        """Let another relay do the rest."""
        done = self.relay()
        out, _ = done.communicate(timeout=60)
        assert done.returncode == 0, out

    def delivered(self) -> list[tuple[str, int]]:
        journal = self.folder / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [(key, int(data)) for key, data in (line.split() for line in lines)]

    def records(self) -> list[Record]:
        async def find() -> list[Record]:
            async with open_store(self.url) as store:
                return list(await store.find(Query()))

        return asyncio.run(find())

    def in_flight(self) -> set[tuple[str, int]]:
        return {_name(record) for record in self.records() if record.status == "sending"}

    def check(self, in_flight: set[tuple[str, int]]) -> None:
        """The journal against what was put: the checker."""
        check_journal(self.delivered(), in_flight)
        assert {record.status for record in self.records()} == {"published"}


def check_journal(delivered: list[tuple[str, int]], in_flight: set[tuple[str, int]]) -> None:
    put = {(f"k{key}", number) for key in range(KEYS) for number in range(EACH)}
    assert set(delivered) - put == set(), "a ghost was delivered"
    assert put - set(delivered) == set(), "a message was lost"
    twice = {name for name, times in Counter(delivered).items() if times > 1}
    assert twice <= in_flight, f"delivered again without being in flight: {sorted(twice - in_flight)}"
    for key in range(KEYS):
        first = list(dict.fromkeys(number for name, number in delivered if name == f"k{key}"))
        assert first == list(range(EACH)), f"the order of k{key} is broken: {first}"


def _name(record: Record) -> tuple[str, int]:
    return str(record.message.key), int(record.message.data)


@pytest.fixture(params=["sqlite", "postgres"])
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Post:
    url = f"sqlite:///{tmp_path / 'post.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
    (tmp_path / "handler.py").write_text(HANDLER)

    async def fill() -> None:
        async with open_store(url) as store:
            await store.migrate()
            await _fill(store)

    asyncio.run(fill())
    return Post(url, tmp_path)


async def _fill(store: Store) -> None:
    for number in range(EACH):
        await store.put([Message("order.paid", key=f"k{key}", data=number) for key in range(KEYS)])


@contextmanager
def parked(post: Post, point: str) -> Iterator[subprocess.Popen[str]]:
    """A relay that has come to the point and stands there."""
    relay = post.relay(failpoint=point)
    try:
        assert relay.stdout is not None
        for line in relay.stdout:
            if line.startswith(f"PARKED {point.partition(':')[0]}"):
                break
        else:
            raise AssertionError(f"the relay ended without coming by {point}")
        yield relay
    finally:
        relay.kill()
        relay.communicate()


@pytest.mark.parametrize("point", [*POINTS, "after-claim:3", "after-publish:3", "after-settle:3"])
def test_a_relay_killed_at_any_point_loses_nothing(post: Post, point: str) -> None:
    with parked(post, point) as relay:
        relay.send_signal(signal.SIGKILL)
        relay.wait()
    in_flight = post.in_flight()
    if point.startswith(("after-claim", "before-publish", "after-publish")):
        assert in_flight, "the kill came where something was in flight"
    post.finish()
    post.check(in_flight)


def test_a_relay_that_slept_through_its_lease_changes_nothing(post: Post) -> None:
    zombie = post.relay(handler_seconds=0.05)
    try:
        _until(lambda: len(post.delivered()) >= 3)
        zombie.send_signal(signal.SIGSTOP)
        in_flight = post.in_flight()
        post.finish()
        before = [(record.seq, record.status, record.attempts, record.settled_at) for record in post.records()]
        zombie.send_signal(signal.SIGCONT)
        out, _ = zombie.communicate(timeout=60)
        assert zombie.returncode == 0, out
    finally:
        zombie.kill()
        zombie.communicate()
    after = [(record.seq, record.status, record.attempts, record.settled_at) for record in post.records()]
    assert after == before
    post.check(in_flight)


def test_a_relay_told_to_end_leaves_cleanly(post: Post) -> None:
    relay = post.relay(handler_seconds=0.05)
    _until(lambda: len(post.delivered()) >= 3)
    relay.send_signal(signal.SIGTERM)
    out, _ = relay.communicate(timeout=20)
    assert relay.returncode in (0, 3), out
    records = post.records()
    assert "sending" not in {record.status for record in records}
    assert {record.attempts for record in records} <= {0, 1}, "a clean stop burns no attempt"
    post.finish()
    post.check(set())


def _until(happened: object) -> None:
    assert callable(happened)
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


JOURNAL = [(f"k{key}", number) for number in range(EACH) for key in range(KEYS)]


@pytest.mark.parametrize(
    ("journal", "why"),
    [
        (JOURNAL[:-1], "a message was lost"),
        ([*JOURNAL, ("k0", 99)], "a ghost was delivered"),
        ([*JOURNAL, ("k0", 0)], "delivered again without being in flight"),
        ([JOURNAL[KEYS], *JOURNAL[:KEYS], *JOURNAL[KEYS + 1 :]], "the order of k0 is broken"),
    ],
    ids=["loss", "ghost", "duplicate", "inversion"],
)
def test_the_checker_catches_what_it_is_there_for(journal: list[tuple[str, int]], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_journal(journal, set())
    check_journal(JOURNAL, set())
