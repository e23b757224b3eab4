"""`postroom status` beside real relays: two that live, and one that was killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.commands import POSTROOM, Popen, postroom

from postroom.testing.waiting import until


@pytest.fixture
def url(database: str) -> str:
    assert postroom("init", "--store", database, cwd=Path.cwd()).returncode == 0
    return database


@contextmanager
def a_relay(url: str, name: str, lease: str = "3s") -> Iterator[subprocess.Popen[bytes]]:
    command = [*POSTROOM, "relay", "--store", url, "--to", "memory://", "--owner", name]
    command += ["--lease", lease, "--send-timeout", "1s"]
    process = Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def status(url: str, *options: str) -> str:
    env = {**os.environ, "POSTROOM_LEASE": "3s", "POSTROOM_SEND_TIMEOUT": "1s"}
    done = postroom("status", "--store", url, *options, cwd=Path.cwd(), env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def relays(url: str) -> dict[str, Any]:
    shown = json.loads(status(url, "--json"))
    owners = shown["lanes"]["owners"]
    assert all(relay["lanes"] == owners.get(relay["owner"], 0) for relay in shown["relays"])
    return {relay["name"]: relay for relay in shown["relays"]}


def rows(url: str) -> dict[str, list[str]]:
    """The table of relays: its cells, by name."""
    lines = status(url).partition("RELAY")[2].splitlines()[1:]
    return {line.split()[0]: line.split() for line in lines}


def test_two_live_relays_and_a_dead_one_are_shown_as_such(url: str) -> None:
    with ExitStack() as stack:
        processes = {name: stack.enter_context(a_relay(url, name)) for name in ("north", "south", "west")}
        until(lambda: len(found := relays(url)) == 3 and all(each["lanes"] for each in found.values()))
        until(lambda: all(each["alive"] for each in relays(url).values()))
        assert {name: int(cells[3]) for name, cells in rows(url).items()} == {
            name: process.pid for name, process in processes.items()
        }
        processes["west"].send_signal(signal.SIGKILL)
        processes["west"].wait()
        found = relays(url)
        assert (found["west"]["state"], found["west"]["alive"]) == ("gone", False), "its process is no more"
        until(lambda: relays(url)["north"]["lanes"] + relays(url)["south"]["lanes"] == 64)
        until(lambda: all(relays(url)[name]["alive"] for name in ("north", "south")))
        until(lambda: "west" not in relays(url))


def test_a_relay_that_stands_still_is_shown_as_silent_and_when_its_lanes_are_taken_over(url: str) -> None:
    with a_relay(url, "west", "6s") as west:
        until(lambda: relays(url).get("west", {}).get("lanes") == 64)
        west.send_signal(signal.SIGSTOP)
        until(lambda: relays(url)["west"]["state"] == "silent")
        shown = status(url)
        assert re.search(r"^west .* ago, silent$", shown, re.MULTILINE)
        assert re.search(r"^west is silent: its lanes are taken over (in [\d.]+m?s|now)\.$", shown, re.MULTILINE)
