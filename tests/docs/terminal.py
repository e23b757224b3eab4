"""Lines of sh, typed in a folder as they stand in a page: a shell that has `postroom` and `python`.

What would go on for ever, a relay or a consumer, is started, and ended by SIGTERM with the terminal.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.commands import POSTROOM, Popen
from tests.docs.running import PATIENCE, environment

from postroom.testing.waiting import until

EXIT_CODE = re.compile(r"# exit code (\d+)")
SHELL = 'set -o pipefail; postroom() { "$PYTHON" -m postroom "$@"; }; python() { "$PYTHON" "$@"; }; '
ENDLESS = {"relay": "--drain", "consume": "--until-idle"}
"""Commands that only this option lets come to an end."""


class Terminal:
    """One window: what is exported counts for the lines behind it."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder, self.env = folder, environment() | {"COLUMNS": "120", "PYTHON": sys.executable} | env
        self._started: list[subprocess.Popen[str]] = []
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._started:
            process.terminate()
        ended = [process.wait(timeout=PATIENCE) for process in self._started]
        self._ending.close()
        assert exc or set(ended) <= {0}, ended

    def type(self, line: str) -> str:
        """What it prints. It must end well, or with the exit code that a comment names."""
        words = shlex.split(line, comments=True)
        if not words or words[0] == "pip":
            return ""  # what it would install is here
        if words[0] == "export":
            self.env |= dict(each.split("=", 1) for each in words[1:])
            return ""
        if goes_on(words):
            self._start(words[1:])
            return ""
        done = subprocess.run(
            ["bash", "-c", SHELL + line], cwd=self.folder, env=self.env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
        )  # fmt: skip
        said = EXIT_CODE.search(line)
        assert done.returncode == (int(said[1]) if said else 0), f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for it, while all that was started goes on."""
        until(lambda: is_so() or not self._goes_on())
        assert self._goes_on(), "what was started has ended"

    def _goes_on(self) -> bool:
        return all(process.poll() is None for process in self._started)

    def _start(self, arguments: list[str]) -> None:
        argv = [*POSTROOM, *arguments]
        process = Popen(argv, cwd=self.folder, env=self.env, text=True)
        self._started.append(self._ending.enter_context(process))


def goes_on(words: list[str]) -> bool:
    """Would it run until somebody ends it?"""
    ends = ENDLESS.get(words[1]) if len(words) > 1 else None
    return words[0] == "postroom" and ends is not None and ends not in words
