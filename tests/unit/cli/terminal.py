"""The command line on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.commands import POSTROOM, Popen
from tests.unit.cli.running import Desk

Read = Callable[[str], str]
"""Reads until this text has appeared (an empty one: to the end); all that was shown so far."""


@contextmanager
def on_a_terminal(desk: Desk, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Read]]:
    """Run the command on a terminal of 80 columns."""
    terminal, theirs = pty.openpty()
    process = Popen(
        [*POSTROOM, *arguments],
        cwd=desk.folder,
        env=desk.environment(TERM="xterm", COLUMNS="80", LINES="24"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""

    def read(text: str) -> str:
        nonlocal shown
        end = time.monotonic() + 60
        while not text or text.encode() not in shown:
            assert time.monotonic() < end, shown.decode()
            if select.select([terminal], [], [], 1)[0]:
                part = _some_of(terminal)
                if not part and text:
                    raise AssertionError(f"{text!r} never came: {shown.decode()}")
                if not part:
                    break
                shown += part
        return shown.decode()

    try:
        yield process, read
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def plain(shown: str) -> str:
    """What was shown, without the terminal's orders."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def _some_of(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux's way to say that the other side is closed
        return b""
