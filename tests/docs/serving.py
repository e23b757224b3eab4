"""An application of a page, served by uvicorn in a folder with a `shop.db` and a `mail.py`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.docs.running import PATIENCE, environment, messages
from tests.servers.ports import free_port, listens

from postroom.testing.waiting import until

MAIL = """
def send(message):
    with open("mails.txt", "a") as mails:
        print(message.key, message.data["amount"], file=mails)
"""


@contextmanager
def served(folder: Path, code: str, **env: str) -> Iterator[str]:
    """Serves `app:app`, and ends it as a deployment would."""
    (folder / "mail.py").write_text(MAIL)
    (folder / "app.py").write_text(code)
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]
    with subprocess.Popen(argv, cwd=folder, env=environment() | env) as process:
        try:
            until(lambda: listens(port) or process.poll() is not None)
            assert process.poll() is None, "it ended before it was ready"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            # Once it has shut down, uvicorn ends by the signal that it was given.
            ended = process.wait(timeout=PATIENCE)
        assert ended == -signal.SIGTERM


def ask(url: str, method: str = "POST") -> int:
    """The status of the answer; 400 and more is raised."""
    with urlopen(Request(url, method=method), timeout=PATIENCE) as answer:
        return int(answer.status)


def mailed(folder: Path, store: str) -> str:
    """What was mailed once all of this outbox is published."""
    until(lambda: {record.status for record in messages(store)} == {"published"})
    return (folder / "mails.txt").read_text()
