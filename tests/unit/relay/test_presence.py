"""Whether another relay's process is gone: a table for the decision, and real processes for what it is decided by."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.contracts.lanes import RelayInfo
from postroom.relay import presence
from postroom.relay.presence import Start, Unseen, is_gone

HERE = "boot-1 pid:[4026531836]"


def a_relay(process: str = f"{HERE} 500", pid: int = 7) -> RelayInfo:
    return RelayInfo(owner="a", name="a", pid=pid, process=process)


def found(start: Start) -> Callable[[int], Start]:
    return lambda _: start


TABLE = {
    "its process is there": (a_relay(), HERE, "500", False),
    "there is no process of its number": (a_relay(), HERE, Unseen.ABSENT, True),
    "its number belongs to a process that began later": (a_relay(), HERE, "501", True),
    "who has its number is not to be told": (a_relay(), HERE, Unseen.UNKNOWN, False),
    "another machine, or this one before it was started anew": (
        a_relay("boot-2 pid:[4026531836] 500"), HERE, Unseen.ABSENT, False,
    ),
    "another container": (a_relay("boot-1 pid:[4026531837] 500"), HERE, Unseen.ABSENT, False),
    "it could not tell who it is": (a_relay(""), HERE, Unseen.ABSENT, False),
    "we cannot tell where we are": (a_relay(), "", Unseen.ABSENT, False),
    "neither can tell": (a_relay(""), "", Unseen.ABSENT, False),
    "what it wrote makes no sense": (a_relay("500"), HERE, Unseen.ABSENT, False),
    "it has no number": (a_relay(pid=0), HERE, Unseen.ABSENT, False),
    "its number is that of a group": (a_relay(pid=-1), HERE, Unseen.ABSENT, False),
}  # fmt: skip


@pytest.mark.parametrize(("relay", "here", "start", "gone"), TABLE.values(), ids=TABLE.keys())
def test_a_process_is_gone_only_when_that_is_certain(relay: RelayInfo, here: str, start: Start, gone: bool) -> None:
    assert is_gone(relay, here, found(start)) is gone


def test_of_many_relays_those_that_are_gone_are_named() -> None:
    assert presence.gone_among([a_relay("elsewhere pid:[1] 5")]) == frozenset()


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of its processes so")


@linux
def test_this_process_is_here() -> None:
    me = a_relay(presence.process(), os.getpid())
    assert me.process.startswith(presence.place())
    assert not is_gone(me, presence.place(), presence.start_of)


@linux
def test_a_killed_process_is_gone_once_it_was_waited_for() -> None:
    command = [sys.executable, "-c", "from postroom.relay.presence import process; print(process()); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        relay = a_relay(child.stdout.readline().strip(), child.pid)
        assert not is_gone(relay, presence.place(), presence.start_of)
        child.kill()
        child.wait()
        assert is_gone(relay, presence.place(), presence.start_of)


@linux
def test_a_process_with_the_number_of_another_is_not_that_one() -> None:
    place, _, start = presence.process().rpartition(" ")
    other = a_relay(f"{place} {int(start) - 1}", os.getpid())
    assert is_gone(other, presence.place(), presence.start_of)


def test_without_proc_nobody_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(presence, "BOOT", tmp_path / "none")
    assert (presence.place(), presence.process()) == ("", "")
