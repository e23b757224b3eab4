"""The worker protocol from end to end: a message's way, its failures, and what an operator does. Through the command line,
to a real HTTP receiver, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.commands import POSTROOM, Popen, postroom
from tests.scenarios.clerk import Desk, Receiver
from tests.scenarios.outages import outage_of

from postroom.stores import open_store
from postroom.testing.waiting import until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def desk(database: str, tmp_path: Path, receiver: Receiver) -> Iterator[Desk]:
    with closing(Desk(database, tmp_path, receiver.url)) as desk:
        desk("init")
        yield desk


# ── a message's way ──


@pytest.mark.requirement("A2", "B2", "B11")
def test_a_message_is_pending_then_sending_then_published(desk: Desk, receiver: Receiver) -> None:
    seen = threading.Event()
    receiver.delay = lambda _: 0.0 * seen.wait(60)
    message = desk("put", "order.paid", "--key", "7", "--data", '{"amount":12}').strip()
    assert desk.record()["status"] == "pending"
    relay = desk.start("--send-timeout", "60s", "--lease", "150s")
    until(lambda: len(receiver.got) == 1)
    sending = desk.record()
    assert sending["status"] == "sending"
    assert sending["owner"]
    assert sending["locked_at"]
    seen.set()
    until(lambda: desk.record()["status"] == "published")
    desk.stop(relay)
    assert desk.record()["attempts"] == 1
    assert receiver.got == [{"id": message, "key": "7", "body": b'{"amount":12}'}]


@pytest.mark.requirement("A2", "B2", "B11", "D8")
def test_a_timeout_is_retried_and_the_second_try_succeeds(desk: Desk, receiver: Receiver) -> None:
    """Sending, failed, pending again when the backoff is over, and published at the second try."""
    receiver.delay = lambda number: 2.0 if number == 1 else 0.0
    desk("put", "order.paid", "--key", "7", "--data", "1")
    relay = desk.start("--backoff", "8")
    until(lambda: desk.record()["status"] == "failed")
    failed = desk.record()
    assert (failed["status"], failed["attempts"], failed["owner"]) == ("failed", 1, None)
    assert "TIMEOUT" in failed["last_error_code"]
    assert failed["due_at"] > failed["updated_at"]
    until(lambda: desk.record()["status"] == "published")
    desk.stop(relay)
    record = desk.record()
    assert (record["attempts"], record["last_error_code"]) == (2, None)
    assert len(receiver.got) == 2
    assert receiver.got[0]["id"] == receiver.got[1]["id"]


@pytest.mark.requirement("B3", "B11")
def test_a_crashed_workers_message_is_taken_over_when_its_lease_ends(desk: Desk, receiver: Receiver) -> None:
    receiver.delay = lambda number: 30.0 if number == 1 else 0.0
    desk("put", "order.paid", "--key", "7", "--data", "1")
    first = desk.start("--owner", "first")
    until(lambda: len(receiver.got) == 1)
    first.kill()
    first.wait()
    assert desk.record()["status"] == "sending"
    assert desk.record()["owner"].startswith("first:")
    desk.drain("--owner", "second")
    record = desk.record()
    assert (record["status"], record["attempts"]) == ("published", 2)
    assert len(receiver.got) == 2


@pytest.mark.requirement("B2", "B11")
def test_a_message_whose_attempts_are_used_up_succeeds_when_it_is_requeued_by_hand(
    desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda _: 503
    message = desk("put", "order.paid", "--key", "7", "--data", "1").strip()
    out = desk.drain("--max-attempts", "3", code=3)
    assert "1 dead" in out
    record = desk.record()
    assert (record["status"], record["attempts"], record["last_error_code"]) == ("dead", 3, "MAX_ATTEMPTS")
    receiver.answer = lambda _: 200
    desk("requeue", message)
    record = desk.record()
    assert (record["status"], record["attempts"], record["last_error_code"], record["due_at"]) == (
        "pending",
        0,
        None,
        None,
    )
    desk.drain()
    assert (desk.record()["status"], desk.record()["id"]) == ("published", message)


# ── what can fail, and how it recovers ──


async def as_if_elsewhere(url: str) -> None:
    """Let the relays on record be of another machine: nobody here can tell whether their processes live."""
    async with open_store(url) as store:
        for relay in await store.lanes.relays():
            await store.lanes.leave(relay.owner)
            await store.lanes.join(replace(relay, process=""))


@pytest.mark.requirement("B3", "B7")
def test_a_crash_leaves_it_sending_until_its_lease_ends(desk: Desk, receiver: Receiver) -> None:
    """The lease is the worker's own setting: nobody touches the message before it has run out, unless its process is known
    to be gone. Of one on another machine nobody knows."""
    receiver.delay = lambda number: 30.0 if number == 1 else 0.0
    desk("put", "order.paid", "--key", "7", "--data", "1")
    first = desk.start("--lease", "6s")
    until(lambda: len(receiver.got) == 1)
    first.kill()
    first.wait()
    killed = time.monotonic()
    asyncio.run(as_if_elsewhere(desk.url))
    second = desk.start("--lease", "2s")
    until(lambda: len(receiver.got) == 2)
    # The last renewal was at most a third of the lease before the kill; a bound from below is safe on any machine.
    assert time.monotonic() - killed > 3
    until(lambda: desk.record()["status"] == "published")
    desk.stop(second)
    assert desk.record()["attempts"] == 2


@pytest.mark.requirement("B7")
def test_a_broker_that_is_down_costs_no_attempt_and_recovers(desk: Desk, receiver: Receiver) -> None:
    desk("put", "order.paid", "--key", "7", "--data", "1")
    receiver.close()
    relay = desk.start("--concurrency", "1")
    until(lambda: "the broker is away" in desk.notes.read_text())
    record = desk.record()
    assert (record["attempts"], record["last_error_code"]) == (0, None)
    with closing(Receiver(receiver.port)) as back:
        until(lambda: desk.record()["status"] == "published")
        desk.stop(relay)
    assert desk.record()["attempts"] == 1
    assert len(back.got) == 1


@pytest.mark.requirement("B7")
def test_a_broken_body_is_dead_at_once_and_a_mended_one_goes(desk: Desk, receiver: Receiver) -> None:
    desk("put", "order.paid", "--key", "7", "--body", "{broken", "--content-type", "application/json")
    desk.drain(code=3)
    record = desk.record()
    assert (record["status"], record["attempts"], record["last_error_code"]) == ("dead", 1, "CORRUPT_PAYLOAD")
    assert receiver.got == []
    mended = desk("put", "order.paid", "--key", "7", "--data", '{"whole":true}').strip()
    desk("discard", record["id"], "--yes")
    desk.drain()
    assert [each["status"] for each in desk.records()] == ["discarded", "published"]
    assert [got["id"] for got in receiver.got] == [mended]


@pytest.mark.requirement("B7")
def test_attempts_used_up_stay_dead_until_a_person_acts(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: 503
    desk("put", "order.paid", "--key", "7", "--data", "1")
    desk("put", "order.paid", "--key", "7", "--data", "2")
    desk.drain("--max-attempts", "2", code=3)
    assert len(receiver.got) == 2
    receiver.answer = lambda _: 200
    assert "1 dead, 1 waiting behind them" in desk.drain(code=3)
    assert len(receiver.got) == 2, "nothing happens by itself"
    desk("requeue", "--status", "dead")
    desk.drain()
    assert [each["status"] for each in desk.records()] == ["published", "published"]
    assert [got["body"] for got in receiver.got[2:]] == [b"1", b"2"]


@pytest.mark.requirement("B7")
def test_a_database_that_fails_after_the_send_is_waited_for(desk: Desk, receiver: Receiver) -> None:
    """The receiver has it, and the outcome cannot be written: only the settle is repeated, nothing is sent again."""
    outage = outage_of(desk.url)
    receiver.delay = lambda number: outage.begin() if number == 1 else 0.0
    desk("put", "order.paid", "--key", "7", "--data", "1")
    relay = desk.start("--lease", "120s", "--send-timeout", "20s")
    try:
        until(lambda: receiver.answered == 1)
        assert outage.struck, "the database was taken away before the answer"
        time.sleep(1.5)  # long enough for some tries to settle
    finally:
        outage.end()
    until(lambda: desk.record()["status"] == "published")
    desk.stop(relay)
    assert (desk.record()["attempts"], len(receiver.got)) == (1, 1)


@pytest.mark.requirement("B7")
def test_a_database_away_for_longer_than_the_lease_may_cost_a_duplicate(desk: Desk, receiver: Receiver) -> None:
    """Then the lane is given up: what was in flight pays an attempt and comes again, with the same id; the rest comes once."""
    outage = outage_of(desk.url)
    receiver.delay = lambda number: outage.begin() if number == 1 else 0.0
    for number in range(3):
        desk("put", "order.paid", "--key", "7", "--data", str(number))
    relay = desk.start("--batch", "1")
    try:
        until(lambda: receiver.answered == 1)
        assert outage.struck
        time.sleep(4)  # two leases
    finally:
        outage.end()
    until(lambda: {each["status"] for each in desk.records()} == {"published"})
    desk.stop(relay)
    first, *others = [each["attempts"] for each in desk.records()]
    assert first in (1, 2)
    assert others == [1, 1]
    assert [got["body"] for got in receiver.got] == [b"0"] * first + [b"1", b"2"]
    assert len({got["id"] for got in receiver.got}) == 3


# ── what an operator does ──


@pytest.mark.requirement("B8")
def test_an_operator_counts_by_status_frees_expired_locks_and_requeues(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda number: 422 if receiver.got[number - 1]["key"] == "bad" else 204
    for key in ("good", "bad", "bad"):
        desk("put", "order.paid", "--key", key, "--data", "1")
    desk.drain(code=3)
    receiver.delay = lambda _: 30.0
    desk("put", "order.paid", "--key", "slow", "--data", "1")
    first = desk.start("--owner", "first")
    until(lambda: receiver.got[-1]["key"] == "slow")
    first.kill()
    first.wait()
    status = desk.status()
    assert {name: status[name] for name in ("pending", "sending", "failed", "published", "dead")} == {
        "pending": 1,
        "sending": 1,
        "failed": 0,
        "published": 1,
        "dead": 1,
    }
    # An expired lock needs no command: whoever comes next frees it.
    receiver.delay = lambda _: 0.0
    receiver.answer = lambda _: 204
    desk.drain(code=3)
    status = desk.status()
    assert (status["sending"], status["published"], status["dead"]) == (0, 2, 1)
    assert not any(owner.startswith("first:") for owner in status["lanes"]["owners"])
    desk("requeue", "--status", "dead")
    assert desk.status()["pending"] == 2
    desk.drain()
    assert desk.status()["published"] == 4


# ── bad input ──


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        ([], "Nowhere to go", 2),
        (["--to", "gopher://x"], "knows no transport gopher://", 2),
        (["--to", "local://nowhere:send"], "cannot be loaded", 2),
        (["--to", "memory://", "--lease", "1s"], "a lease must be at least", 2),
        (["--to", "memory://", "--backoff", "soon"], "soon", 2),
        (["--to", "memory://", "--batch", "0"], "batch is 0", 2),
    ],
    ids=["nowhere", "scheme", "function", "lease", "backoff", "batch"],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], sentence: str, code: int) -> None:
    store = ["--store", f"sqlite:///{tmp_path / 'post.db'}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM")}
    assert postroom("init", *store, cwd=tmp_path, env=env).returncode == 0
    done = postroom("relay", *store, *arguments, cwd=tmp_path, env=env)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert sentence in said
    assert "Traceback" not in said


def test_what_a_relay_says_is_read_through_a_pipe_as_it_happens(desk: Desk) -> None:
    relay = Popen(
        [*POSTROOM, "relay", "--to", desk._to, "--store", desk.url],
        cwd=desk._folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert relay.stdout is not None
        assert relay.stdout.readline().startswith("relay ")
    finally:
        relay.terminate()
        relay.communicate(timeout=30)


# ── whose fault an answer is ──


@pytest.mark.parametrize("status", [401, 404])
def test_a_receiver_that_refuses_us_pauses_the_route_and_buries_nothing(
    desk: Desk, receiver: Receiver, status: int
) -> None:
    """The URL or the secret is wrong, not the message: once that is mended, all goes on with its first try."""
    receiver.answer = lambda number: status if number <= 2 else 204
    for key in "abc":
        desk("put", "order.paid", "--key", key)
    out = desk.drain()
    assert f"route default is paused: the receiver refuses us (HTTP_{status}" in out
    assert {(each["status"], each["attempts"]) for each in desk.records()} == {("published", 1)}


def test_a_receiver_that_is_gone_shuts_the_route_until_the_relay_is_started_anew(
    desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda _: 410
    for key in "abc":
        desk("put", "order.paid", "--key", key)
    out = desk.drain("--concurrency", "1", code=3)
    assert "stopped before all was drained: 3 messages left" in out
    assert "route default is shut (ENDPOINT_GONE): fix it, or take it out, and restart the relay." in out
    assert {each["attempts"] for each in desk.records()} == {0}
    receiver.answer = lambda _: 204
    desk.drain()
    assert desk.status()["published"] == 3


def test_a_relay_with_a_shut_route_says_so_once_and_in_its_health(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: 410
    desk("put", "order.paid", "--key", "a")
    relay = desk.start("--health", "0")
    until(lambda: "is shut" in desk.notes.read_text())
    address = desk.notes.read_text().partition("health: http://")[2].partition("/")[0]
    with urllib.request.urlopen(f"http://{address}/livez", timeout=30) as answer:
        assert "Route default is shut (ENDPOINT_GONE): fix it" in answer.read().decode()
    desk("put", "order.paid", "--key", "b")
    assert desk.status()["pending"] == 2  # asked by a process that takes as long as many looks of the relay
    desk.stop(relay)
    assert len(receiver.got) == 1
    assert desk.notes.read_text().count("is shut") == 1
