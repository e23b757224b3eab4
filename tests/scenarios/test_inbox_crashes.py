"""`postroom consume` is killed at every point where it hurts, between a real broker and a real database: every message has
exactly one effect, every key's effects are in order, and dead is what is poison and nothing else."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.conftest import url_of
from tests.scenarios.receivers import PATIENCE, Receiver
from tests.servers.streams import fresh_stream

from postroom import inbox as inbox_package
from postroom.message import Message
from postroom.telemetry.failpoints import INBOX_POINTS

KEYS, EACH = 3, 4
POISON, HOPELESS, FLAKY = ("k0", 1), ("k1", 1), ("k2", 1)
"""Refused at once, failing always, failing the first time."""
MESSAGES = [
    Message(("by.thread", "by.loop")[key % 2], key=f"k{key}", data=n) for n in range(EACH) for key in range(KEYS)
]
HANDLED = {(str(message.key), message.data) for message in MESSAGES} - {POISON, HOPELESS}
APP = f"""
import inspect, os, time
from pathlib import Path
from postroom.inbox import Inbox, RejectMessage
from postroom.retry import RetryPolicy

inbox = Inbox("billing", retry=RetryPolicy.parse("0.05", max_attempts=3))

def effect(message, tx):
    mark = "?" if "sqlite" in type(tx).__module__ else "%s"
    return tx.execute(f"INSERT INTO effects (key, data) VALUES ({{mark}}, {{mark}})", [message.key, message.data])

def judge(message):
    name, flaw = (message.key, message.data), Path("flaw")
    if name == {POISON}:
        raise RejectMessage("poison")
    if name == {HOPELESS}:
        raise OSError("hopeless")
    if name == {FLAKY} and not flaw.exists():
        flaw.touch()
        raise OSError("flaky")

@inbox.on("by.thread")
def in_a_thread(message, tx):
    effect(message, tx)
    if os.environ.get("GATED"):
        print("HANDLING", flush=True)
        while not Path("open").exists():
            time.sleep(0.01)
    judge(message)

@inbox.on("by.loop")
async def in_the_loop(message, tx):
    done = effect(message, tx)
    if inspect.isawaitable(done):
        await done
    judge(message)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path, nats_url: str) -> Iterator[Receiver]:
    (tmp_path / "billing.py").write_text(APP)
    with fresh_stream(nats_url) as stream:
        receiver = Receiver(url_of(request.param, request, tmp_path), tmp_path, nats_url, stream)
        receiver.prepare()
        receiver.send(MESSAGES)
        yield receiver


def wait_for(running: subprocess.Popen[str], line: str) -> None:
    """Read what it says until this is said."""
    assert running.stdout is not None
    said = []
    for each in running.stdout:
        if each.startswith(line):
            return
        said.append(each)
    raise AssertionError(f"it ended without {line}: {''.join(said)}")


def check(receiver: Receiver) -> None:
    effects = receiver.effects()
    assert sorted(effects) == sorted(HANDLED), "one effect each, and none of what is dead"
    for key in {key for key, _ in effects}:
        numbers = [number for each, number in effects if each == key]
        assert numbers == sorted(numbers), f"the order of {key} is kept"
    dead = {(each.message.key, each.message.data): each.code for each in receiver.dead()}
    assert dead == {POISON: "UNACCEPTABLE", HOPELESS: "MAX_ATTEMPTS"}


THIRD = ("after-remembered:3", "before-handled:3", "after-handled:3", "after-failed:3")


def killed_at(receiver: Receiver, point: str) -> None:
    with receiver.consuming("--until-idle", "20s", POSTROOM_FAILPOINT=point) as running:
        wait_for(running, f"PARKED {point.partition(':')[0]}")
        running.send_signal(signal.SIGKILL)
        running.wait()


@pytest.mark.parametrize("point", [*INBOX_POINTS, *THIRD])
@pytest.mark.requirement("A4")
def test_a_receiver_killed_at_any_point_handles_each_message_once(receiver: Receiver, point: str) -> None:
    if point == "after-counted":  # only what was delivered before is counted
        killed_at(receiver, "after-received")
    killed_at(receiver, point)
    assert receiver.open(), "the kill came where something was in hand"
    receiver.finish()
    check(receiver)


def test_a_receiver_that_nobody_kills_does_the_same(receiver: Receiver) -> None:
    receiver.finish()
    check(receiver)


def test_a_receiver_told_to_end_finishes_what_it_handles_and_gives_the_rest_back(receiver: Receiver) -> None:
    receiver.ack_wait = "10m"  # what is not given back does not come again within this test
    with receiver.consuming("--handlers", "1", GATED="1") as running:
        wait_for(running, "HANDLING")
        running.send_signal(signal.SIGTERM)
        time.sleep(0.2)  # it may not end, however long the handler takes
        assert running.poll() is None
        (receiver.folder / "open").touch()
        out, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, out
    assert re.search(r"^received \d+, handled 1$", out, re.MULTILINE), out
    assert receiver.effects() == [("k0", 0)]
    receiver.finish()
    check(receiver)


def test_every_point_that_an_inbox_comes_by_is_in_the_matrix() -> None:
    files = Path(str(inbox_package.__file__)).parent.rglob("*.py")
    reached = {name for file in files for name in re.findall(r'reach\("([a-z-]+)"\)', file.read_text())}
    assert reached == set(INBOX_POINTS)
