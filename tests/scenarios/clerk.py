"""A clerk at the command line, and whoever the messages are for: a real HTTP receiver on loopback. For tests that drive
Postroom as a script would."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.commands import POSTROOM, Popen, postroom

QUICK = ["--lease", "2s", "--send-timeout", "900ms", "--poll", "50ms", "--backoff", "0.2"]


class Receiver:
    """An HTTP server on loopback that answers as it is told, and remembers what it got."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[dict[str, Any]] = []
        self.answered = 0
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
                    outer.answered += 1

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = False
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hooks"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Desk:
    """The command line, as a script uses it."""

    def __init__(self, url: str, folder: Path, to: str) -> None:
        self.url, self._folder, self._to = url, folder, to
        self.notes = folder / "notes"
        """What the relays that were started say on stderr."""
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = postroom(*arguments, "--store", self.url, cwd=self._folder)
        assert done.returncode == code, (done.stdout + done.stderr).decode()
        assert b"Traceback" not in done.stderr
        return done.stdout.decode()

    def drain(self, *options: str, code: int = 0) -> str:
        return self("relay", "--to", self._to, "--drain", *QUICK, *options, code=code)

    def start(self, *options: str) -> subprocess.Popen[str]:
        arguments = ["relay", "--to", self._to, "--store", self.url, *QUICK, *options]
        with self.notes.open("a") as notes:
            relay = Popen([*POSTROOM, *arguments], cwd=self._folder, stdout=notes, stderr=notes, text=True)
        self._started.append(relay)
        return relay

    def stop(self, relay: subprocess.Popen[str]) -> None:
        """Tell it to end, and see that it ends well."""
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(60) == 0, self.notes.read_text()
        assert "Traceback" not in self.notes.read_text()

    def close(self) -> None:
        """Leave no relay behind."""
        for relay in self._started:
            relay.kill()
            relay.wait()

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("list", "--json").splitlines()]

    def record(self) -> dict[str, Any]:
        (record,) = self.records()
        return record

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "--json"))
        return found
