"""The end-to-end tests of the worker protocol (requirement B11), by their names: through the command line, to a real HTTP
receiver, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

POSTROOM = [sys.executable, "-m", "postroom"]
QUICK = ["--lease", "2s", "--send-timeout", "900ms", "--poll", "50ms", "--backoff", "0.2"]


class Receiver:
    """An HTTP server on loopback that answers as it is told, and remembers what it got."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.answer: Callable[[int], int] = lambda _: 204
        self.delay: Callable[[int], float] = lambda _: 0.0
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                outer.got.append({"id": self.headers["ce-id"], "key": self.headers["ce-subject"], "body": body})
                number = len(outer.got)
                outer.closing.wait(outer.delay(number))
                with suppress(OSError):  # whoever asked may be dead by now
                    self.send_response(outer.answer(number))
                    self.send_header("content-length", "0")
                    self.end_headers()

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class Desk:
    """The command line, as a script uses it."""

    def __init__(self, url: str, folder: Path, to: str) -> None:
        self.url, self._folder, self._to = url, folder, to

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*POSTROOM, *arguments, "--store", self.url],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def drain(self, *options: str, code: int = 0) -> str:
        return self("relay", "--to", self._to, "--drain", *QUICK, *options, code=code)

    def start(self, *options: str) -> subprocess.Popen[str]:
        arguments = ["relay", "--to", self._to, "--store", self.url, *QUICK, *options]
        return subprocess.Popen([*POSTROOM, *arguments], cwd=self._folder, stdout=subprocess.DEVNULL, text=True)

    def record(self) -> dict[str, Any]:
        (line,) = self("list", "--json").splitlines()
        record: dict[str, Any] = json.loads(line)
        return record

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "--json"))
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver) -> Desk:
    url = f"sqlite:///{tmp_path / 'post.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
    desk = Desk(url, tmp_path, receiver.url)
    desk("init")
    return desk


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_w101_pending_sending_succeeded(desk: Desk, receiver: Receiver) -> None:
    seen = threading.Event()
    receiver.delay = lambda _: 0.0 * seen.wait(10)
    message = desk("put", "order.paid", "--key", "7", "--data", '{"amount":12}').strip()
    assert desk.record()["status"] == "pending"
    relay = desk.start("--send-timeout", "10s", "--lease", "30s")
    until(lambda: len(receiver.got) == 1)
    assert desk.record()["status"] == "sending"
    seen.set()
    until(lambda: desk.record()["status"] == "published")
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(20) == 0
    assert receiver.got == [{"id": message, "key": "7", "body": b'{"amount":12}'}]


def test_w102_a_timeout_is_retried_and_the_second_try_succeeds(desk: Desk, receiver: Receiver) -> None:
    receiver.delay = lambda number: 2.0 if number == 1 else 0.0
    desk("put", "order.paid", "--key", "7", "--data", "1")
    desk.drain()
    record = desk.record()
    assert (record["status"], record["attempts"]) == ("published", 2)
    assert len(receiver.got) == 2
    assert receiver.got[0]["id"] == receiver.got[1]["id"]


def test_w103_a_crashed_workers_message_is_taken_over_when_its_lease_ends(desk: Desk, receiver: Receiver) -> None:
    receiver.delay = lambda number: 30.0 if number == 1 else 0.0
    desk("put", "order.paid", "--key", "7", "--data", "1")
    first = desk.start()
    until(lambda: len(receiver.got) == 1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert desk.record()["status"] == "sending"
    desk.drain()
    record = desk.record()
    assert (record["status"], record["attempts"]) == ("published", 2)
    assert len(receiver.got) == 2


def test_w104_attempts_used_up_then_requeued_by_hand_succeeds(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: 503
    message = desk("put", "order.paid", "--key", "7", "--data", "1").strip()
    out = desk.drain("--max-attempts", "3", code=3)
    assert "1 dead" in out
    record = desk.record()
    assert (record["status"], record["attempts"], record["last_error_code"]) == ("dead", 3, "MAX_ATTEMPTS")
    receiver.answer = lambda _: 200
    desk("requeue", message)
    assert (desk.record()["status"], desk.record()["attempts"]) == ("pending", 0)
    desk.drain()
    assert (desk.record()["status"], desk.record()["id"]) == ("published", message)


def test_b7_a_broker_that_is_down_costs_no_attempt_and_recovers(tmp_path: Path, postgres_database: str) -> None:
    receiver = Receiver()
    desk = Desk(postgres_database, tmp_path, receiver.url)
    desk("init")
    desk("put", "order.paid", "--key", "7", "--data", "1")
    receiver.close()
    relay = desk.start()
    until(lambda: bool(desk.status()["lanes"]["owned"]))
    time.sleep(0.5)
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(20) == 0
    record = desk.record()
    assert (record["status"], record["attempts"]) == ("pending", 0)
    back = Receiver()
    desk = Desk(postgres_database, tmp_path, back.url)
    desk.drain()
    back.close()
    assert desk.record()["attempts"] == 1


def test_b7_a_broken_body_is_dead_at_once(desk: Desk, receiver: Receiver) -> None:
    desk("put", "order.paid", "--key", "7", "--body", "{broken", "--content-type", "application/json")
    desk.drain(code=3)
    record = desk.record()
    assert (record["status"], record["attempts"], record["last_error_code"]) == ("dead", 1, "CORRUPT_PAYLOAD")
    assert receiver.got == []


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
    subprocess.run([*POSTROOM, "init", *store], check=True, capture_output=True, cwd=tmp_path, env=env)
    done = subprocess.run(
        [*POSTROOM, "relay", *store, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=tmp_path,
        env=env,
    )
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
