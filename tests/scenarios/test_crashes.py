"""A relay is killed, or stopped for longer than its lease, at every point where it hurts: nothing is lost, nothing that
was not in flight comes twice, and every key's first deliveries are in order. Real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.commands import POSTROOM, Popen
from tests.scenarios.conftest import DATABASES, url_of
from tests.scenarios.outages import outage_of

import postroom
from postroom.contracts.lanes import Lane
from postroom.contracts.ops import Query, Record
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.stores import open_store
from postroom.telemetry.failpoints import POINTS
from postroom.testing.journal import Delivery, Name, Run, check
from postroom.testing.waiting import until

KEYS, EACH = 6, 8
PUT = [Name(f"k{key}", number) for number in range(EACH) for key in range(KEYS)]
HANDLER = """
import os, time
from pathlib import Path

def deliver(message):
    time.sleep(float(os.environ.get("HANDLER_SECONDS", "0")))
    while os.environ.get("HANDLER_GATE") and Path("closed").exists():
        time.sleep(0.005)
    with open("journal", "a") as journal:
        journal.write(f"{message.key} {message.data} {os.getpid()}\\n")
        journal.flush()
        os.fsync(journal.fileno())
"""
ONLY_ON = {"after-mark": "mongodb"}
"""Points that a relay comes by on one database alone."""
QUICK = ["--lease", "2s", "--send-timeout", "900ms", "--poll", "50ms", "--backoff", "0.1", "--batch", "5"]


@dataclass
class Post:
    """A store with messages in it, and what was delivered."""

    url: str
    folder: Path

    def relay(self, **env: str) -> subprocess.Popen[str]:
        return Popen(
            [*POSTROOM, "relay", "--store", self.url, "--to", "local://handler:deliver", "--drain", *QUICK],
            cwd=self.folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> None:
        """Let another relay do the rest."""
        done = self.relay()
        out, _ = done.communicate(timeout=60)
        assert done.returncode == 0, out

    def delivered(self) -> list[Delivery]:
        journal = self.folder / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [Delivery(Name(key, int(data)), f"relay {pid}") for key, data, pid in (line.split() for line in lines)]

    def records(self) -> list[Record]:
        async def find() -> list[Record]:
            async with open_store(self.url) as store:
                return list(await store.ops.find(Query()))

        return asyncio.run(find())

    def lanes(self) -> list[Lane]:
        async def lanes() -> list[Lane]:
            async with open_store(self.url) as store:
                return list(await store.lanes.all())

        return asyncio.run(lanes())

    def in_flight(self) -> set[Name]:
        return {_name(record) for record in self.records() if record.status == "sending"}

    def check(self, in_flight: set[Name]) -> None:
        """There was one fault, and this was in flight at it."""
        found = {_name(record): record.status for record in self.records()}
        assert set(found.values()) == {"published"}
        check(Run(put=PUT, journal=self.delivered(), found=found, faults=dict.fromkeys(in_flight, 1)))


def _name(record: Record) -> Name:
    return Name(str(record.message.key), int(record.message.data))


@pytest.fixture(params=(*DATABASES, "mongo_standalone"))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def post(database: str, tmp_path: Path) -> Post:
    (tmp_path / "handler.py").write_text(HANDLER)

    async def fill() -> None:
        async with open_store(database) as store:
            await store.schema.migrate()
            await _fill(store)

    asyncio.run(fill())
    return Post(database, tmp_path)


async def _fill(store: Store) -> None:
    for number in range(EACH):
        await store.outbox.put([Message("order.paid", key=f"k{key}", data=number) for key in range(KEYS)])


@contextmanager
def parked(post: Post, point: str) -> Iterator[subprocess.Popen[str]]:
    """A relay that has come to the point and stands there."""
    relay = post.relay(POSTROOM_FAILPOINT=point)
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


@pytest.mark.parametrize("point", [*POINTS, "after-claim:3", "after-publish:3", "after-mark:3", "after-settle:3"])
@pytest.mark.requirement("C1", "D8")
def test_a_relay_killed_at_any_point_loses_nothing(post: Post, point: str) -> None:
    only = ONLY_ON.get(point.partition(":")[0])
    if only and not post.url.startswith(only):
        pytest.skip(f"{point} is on the way to {only} alone")
    with parked(post, point) as relay:
        relay.send_signal(signal.SIGKILL)
        relay.wait()
    in_flight = post.in_flight()
    if point.startswith(("after-claim", "before-publish", "after-publish", "after-mark")):
        assert in_flight, "the kill came where something was in flight"
    post.finish()
    post.check(in_flight)


def test_every_point_that_the_code_comes_by_is_in_the_matrix() -> None:
    source = Path(str(postroom.__file__)).parent
    # An inbox's points have a matrix of their own, in test_inbox_crashes.py.
    files = [file for file in source.rglob("*.py") if not file.is_relative_to(source / "inbox")]
    reached = {name for file in files for name in re.findall(r'reach\("([a-z-]+)"\)', file.read_text())}
    assert reached == set(POINTS)


@contextmanager
def asleep(post: Post) -> Iterator[subprocess.Popen[str]]:
    """A relay that was stopped in the middle of sending, with no lock of the database in its hands."""
    gate = post.folder / "closed"
    gate.touch()
    zombie = post.relay(HANDLER_GATE="1")
    try:
        end = time.monotonic() + 60
        while True:
            until(post.in_flight)
            time.sleep(
                0.2
            )  # it claims what else it has room for; then all its hands are full, and no transaction is open
            zombie.send_signal(signal.SIGSTOP)
            if post.in_flight() and not outage_of(post.url).is_locked():
                break
            assert time.monotonic() < end, "it was never caught between two transactions"
            zombie.send_signal(signal.SIGCONT)
        gate.unlink()
        yield zombie
    finally:
        zombie.kill()
        zombie.communicate()


@pytest.mark.requirement("B3")
def test_a_relay_that_slept_through_its_lease_changes_nothing(post: Post) -> None:
    with asleep(post) as zombie:
        in_flight = post.in_flight()
        its = {lane.lane: lane.epoch for lane in post.lanes() if lane.owner is not None}
        assert its, "the sleeper holds lanes"
        post.finish()
        now = {lane.lane: lane.epoch for lane in post.lanes()}
        assert all(now[lane] > epoch for lane, epoch in its.items()), "every lane of the sleeper was taken over"
        before = [(record.seq, record.status, record.attempts, record.settled_at) for record in post.records()]
        assert all(record.attempts >= 2 for record in post.records() if _name(record) in in_flight)
        zombie.send_signal(signal.SIGCONT)
        out, _ = zombie.communicate(timeout=60)
        assert zombie.returncode == 0, out
    after = [(record.seq, record.status, record.attempts, record.settled_at) for record in post.records()]
    assert after == before
    post.check(in_flight)
    late = [delivery.name for delivery in post.delivered() if delivery.relay == f"relay {zombie.pid}"]
    assert late, "it woke up in the middle of its sends"
    assert set(late) <= in_flight, "and began no other"


def test_a_relay_told_to_end_leaves_cleanly(post: Post) -> None:
    relay = post.relay(HANDLER_SECONDS="0.05")
    until(lambda: len(post.delivered()) >= 3)
    relay.send_signal(signal.SIGTERM)
    out, _ = relay.communicate(timeout=20)
    assert relay.returncode in (0, 3), out
    records = post.records()
    assert "sending" not in {record.status for record in records}
    assert {record.attempts for record in records} <= {0, 1}, "a clean stop burns no attempt"
    post.finish()
    post.check(set())
