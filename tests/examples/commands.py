"""The commands of an example's README, run as they stand there."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.error import HTTPError
from urllib.request import urlopen

PATIENCE_SECONDS = 90


@dataclass
class Commands:
    """Runs them in the example's folder; what was started with `&` is ended at the end.

    `instead` says what a line's words are replaced by: ports that are free here, a topic of the test's own."""

    folder: Path
    env: Mapping[str, str]
    instead: Mapping[str, str] = field(default_factory=dict)
    _ending: ExitStack = field(default_factory=ExitStack)

    def lines(self) -> list[str]:
        """Those of the README's `sh` blocks, without comments, and without what only a shell can do."""
        blocks = re.findall(r"```sh\n(.+?)```", (self.folder / "README.md").read_text(), re.DOTALL)
        lines = (re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines())
        return [line for line in lines if line and not line.startswith(("export", "kill"))]

    def run(self, line: str) -> str:
        """What a line says; it must end well. One that ends in `&` goes on, and says nothing."""
        for old, new in self.instead.items():
            line = line.replace(old, new)
        program, *words = shlex.split(line)
        if program == "curl":
            return post(words[-1], words[1])
        command = [sys.executable, *(["-m", "postroom"] if program == "postroom" else []), *words]
        if command[-1] == "&":
            self._start(command[:-1])
            return ""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _start(self, command: list[str]) -> None:
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._ending.callback(process.wait, PATIENCE_SECONDS)
        self._ending.callback(process.terminate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.close()


def post(url: str, form: str) -> str:
    """What a server answers, with its status before it; it may still be about to start."""
    wait_for_port(int(url.split(":")[2].partition("/")[0]))
    try:
        with urlopen(url, form.encode(), timeout=PATIENCE_SECONDS) as answer:
            return f"{answer.status} {answer.read().decode()}"
    except HTTPError as exc:
        return f"{exc.code} {exc.read().decode()}"


def wait_for_port(port: int) -> None:
    """Until somebody listens there."""
    patience = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < patience:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens at port {port}")
