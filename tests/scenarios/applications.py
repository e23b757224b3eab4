"""Web applications as people run them: uvicorn in a process of its own, on a port of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.testing.waiting import until

PATIENCE = 60
RUNNING = re.compile(r"Uvicorn running on (http://\S+)")
"""With its address: psycopg asks "Is the server running on that host" when a database is away."""


@dataclass
class Application:
    """One that runs; what it says is kept."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    url: str = ""

    def request(self, method: str, path: str, data: object = None) -> tuple[int, Any]:
        """The status, and the body as JSON. Data are JSON too, or bytes that are."""
        body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
        asked = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.loads(refusal.read() or b"null")

    def stop(self) -> str:
        """End it as an orchestrator does; what it said in its life."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        return self.output

    @property
    def output(self) -> str:
        return "".join(self.said)

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)


@contextmanager
def application(folder: Path, arguments: Sequence[str], **env: str) -> Iterator[Application]:
    """`uvicorn ARGUMENTS`, run in a folder, listening; or, where it could not start, ended."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "uvicorn", *arguments, "--port", "0"],
        cwd=folder,
        env=known | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    app = Application(process)
    listener = threading.Thread(target=app.listen)
    listener.start()
    try:
        until(lambda: RUNNING.search(app.output) or process.poll() is not None, lambda: app.output)
        if found := RUNNING.search(app.output):
            app.url = found[1]
        else:
            listener.join(PATIENCE)
        yield app
    finally:
        process.kill()
        process.wait()
        listener.join(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
