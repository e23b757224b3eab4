"""A server that stands still: its connections stay, and nothing is answered."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 10


def child_of(directory: Path) -> int:
    """The process that the keeper of this place runs."""
    keeper = int((directory / "alive").read_text())
    (server,) = map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split())
    return server


def freeze(process: int) -> None:
    """Returns when it stands: on a busy machine its threads may go on for a while after the signal, and answer."""
    os.kill(process, signal.SIGSTOP)
    until = time.monotonic() + PATIENCE_SECONDS
    while not _stands(process):
        assert time.monotonic() < until, f"process {process} does not stop"
        time.sleep(0.005)


def thaw(process: int) -> None:
    """It goes on."""
    os.kill(process, signal.SIGCONT)


@contextmanager
def frozen(process: int) -> Iterator[None]:
    """For a while."""
    freeze(process)
    try:
        yield
    finally:
        thaw(process)


def _stands(process: int) -> bool:
    states = (stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{process}/task").glob("*/stat"))
    return all(state in "TtZX" for state in states)
