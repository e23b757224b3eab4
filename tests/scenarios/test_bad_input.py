"""Handlers and receivers that misbehave, and relays that are called alike: through the command line, on SQLite and
PostgreSQL. Each does what was promised, and no other key suffers."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.commands import POSTROOM, Popen, postroom

from postroom.testing.waiting import until

OURS = re.compile(r'File ".*/postroom/.*"')
QUICK = ["--lease", "30s", "--send-timeout", "900ms", "--poll", "50ms", "--backoff", "0.1", "--max-attempts", "3"]
HANDLERS = """
import asyncio, os, signal, time

def note(message):
    with open("journal", "a") as journal:
        journal.write(f"{message.key} {message.data}\\n")

def raises(message):
    if message.key == "bad":
        raise ValueError(f"no such order: {message.data}")
    note(message)

def hangs(message):
    if message.key == "bad":
        time.sleep(3_600)
    note(message)

async def hangs_async(message):
    if message.key == "bad":
        await asyncio.sleep(3_600)
    note(message)

def exits(message):
    if message.key == "bad":
        os._exit(1)
    note(message)

def kills(message):
    if message.key == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    note(message)

def slow(message):
    if message.key == "bad":
        raise ValueError("no")
    time.sleep(0.2)
    note(message)
"""


class Desk:
    """A folder with the handlers, a store, and the command line."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        (folder / "handlers.py").write_text(HANDLERS)
        self("init")

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        done = postroom(*arguments, "--store", self._url, cwd=self._folder, given=(stdin or "").encode())
        out, err = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, out + err
        assert not OURS.search(err), "a user's own traceback is shown; never one of ours"
        return out

    def put(self, *keys: str) -> None:
        lines = [json.dumps({"type": "order.paid", "key": key, "data": number}) for number, key in enumerate(keys)]
        self("put", "--jsonl", "-", stdin="\n".join(lines))

    def drain(self, handler: str, *options: str, code: int) -> str:
        return self("relay", "--to", f"local://handlers:{handler}", "--drain", *QUICK, *options, code=code)

    @contextmanager
    def started(self, to: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        process = Popen(
            [*POSTROOM, "relay", "--to", to, "--store", self._url, *QUICK, *options],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def records(self, key: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self("list", "--json").splitlines()]
        return [record for record in found if key in (None, record["key"])]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "--json"))
        return found

    def journal(self) -> list[str]:
        file = self._folder / "journal"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def desk(database: str, tmp_path: Path) -> Desk:
    return Desk(database, tmp_path)


def the_bad_one(desk: Desk, *, crashes: int = 0) -> dict[str, Any]:
    """The head of the bad key. What waits behind it was tried by nobody; at most it was in flight at the first crash, and in
    the half batch at the second: from then on the bad one travels alone."""
    head, behind = desk.records("bad")
    assert behind["parked"]
    assert behind["status"] in ("pending", "failed")
    assert behind["attempts"] <= min(crashes, 2)
    assert {record["status"] for record in desk.records("good")} == {"published"}
    return head


def test_a_handler_that_raises_kills_its_message_and_no_other(desk: Desk) -> None:
    desk.put("bad", "good", "bad", "good")
    out = desk.drain("raises", code=3)
    assert "1 dead, 1 waiting behind them: see `postroom list --status dead`." in out
    head = the_bad_one(desk)
    assert (head["status"], head["attempts"], head["last_error_code"]) == ("dead", 3, "MAX_ATTEMPTS")
    said, *trace = head["last_error"].splitlines()
    assert said == "HANDLER_ERROR: ValueError: no such order: 0"
    assert "in raises" in "".join(trace)
    assert desk.journal() == ["good 1", "good 3"]


@pytest.mark.parametrize("handler", ["hangs", "hangs_async"])
def test_a_handler_that_hangs_is_given_up_by_the_send_timeout(desk: Desk, handler: str) -> None:
    desk.put("bad", "good", "bad", "good")
    desk.drain(handler, "--max-attempts", "2", code=3)
    head = the_bad_one(desk)
    assert (head["status"], head["attempts"], head["last_error_code"]) == ("dead", 2, "MAX_ATTEMPTS")
    assert head["last_error"].startswith("TIMEOUT: ")
    assert desk.journal() == ["good 1", "good 3"]


@pytest.mark.parametrize("handler", ["exits", "kills"])
def test_a_handler_that_kills_the_process_ends_as_a_crash_loop(desk: Desk, handler: str) -> None:
    """A supervisor starts the relay again and again; in the end the poison is dead, and all others went through."""
    desk.put("bad", "good", "bad", "good")
    codes = []
    for _ in range(10):
        with desk.started(f"local://handlers:{handler}", "--drain") as relay:
            relay.communicate(timeout=60)
            codes.append(relay.returncode)
        if codes[-1] == 3:
            break
    assert codes[-1] == 3, codes
    assert codes[:-1] == [1 if handler == "exits" else -signal.SIGKILL] * 3, "it died once for each attempt"
    head = the_bad_one(desk, crashes=3)
    assert (head["status"], head["attempts"], head["last_error_code"]) == ("dead", 3, "CRASH_LOOP")
    assert sorted(set(desk.journal())) == ["good 1", "good 3"]


def test_two_relays_of_the_same_name_are_two_and_both_work(desk: Desk) -> None:
    to = "local://handlers:raises"
    with desk.started(to, "--owner", "twin") as one, desk.started(to, "--owner", "twin") as two:

        def are_sharing() -> bool:
            status = desk.status()
            return len(status["lanes"]["owners"]) == 2 and status["lanes"]["free"] == 0

        until(are_sharing)
        owners = desk.status()["lanes"]["owners"]
        assert all(owner.startswith("twin:") for owner in owners)
        assert [relay["name"] for relay in desk.status()["relays"]] == ["twin", "twin"]
        desk.put(*(f"k{number}" for number in range(50)))
        until(lambda: desk.status()["published"] == 50)
        for relay in (one, two):
            relay.send_signal(signal.SIGTERM)
            out, _ = relay.communicate(timeout=60)
            assert relay.returncode == 0
            assert "took " in out
    assert len(desk.journal()) == 50


@contextmanager
def a_receiver(port: int) -> Iterator[list[str]]:
    """An HTTP receiver; what it got."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            got.append(self.headers["ce-subject"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_receiver_that_is_away_at_start_is_waited_for_and_costs_no_attempt(desk: Desk) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    desk.put("a", "b", "a")
    with desk.started(f"http://127.0.0.1:{port}/hooks") as relay:
        assert relay.stdout is not None
        line = next(line for line in relay.stdout if " is paused: the broker is away" in line)
        assert "no message spends an attempt" in line
        assert {record["attempts"] for record in desk.records()} == {0}
        with a_receiver(port) as got:
            until(lambda: desk.status()["published"] == 3)
            relay.send_signal(signal.SIGTERM)
            out, _ = relay.communicate(timeout=60)
    assert relay.returncode == 0
    assert "goes on: the broker is back" in out
    assert sorted(got) == ["a", "a", "b"]
    assert {record["attempts"] for record in desk.records()} == {1}


@pytest.mark.parametrize(("keys", "code"), [(["good"], 0), (["bad", "good"], 3)], ids=["nothing dead", "one dead"])
def test_a_drain_that_is_stopped_says_what_is_left(desk: Desk, keys: list[str], code: int) -> None:
    desk.put(*keys, *["good"] * 200)
    with desk.started("local://handlers:slow", "--drain", "--max-attempts", "1", "--batch", "2") as relay:
        until(lambda: desk.journal() and desk.status()["dead"] == (code == 3))
        relay.send_signal(signal.SIGTERM)
        out, _ = relay.communicate(timeout=60)
    status = desk.status()
    left = status["pending"] + status["failed"]
    assert (relay.returncode, status["sending"]) == (code, 0)
    assert 0 < left < 201
    assert f"stopped before all was drained: {left} messages left" in out
    assert ("1 dead, 0 waiting behind them" in out) == (code == 3)
