"""Start a server under a keeper (see `keeper`), wait until it answers, end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import unprivileged
from tests.servers.locks import held
from tests.servers.model import NotHere
from tests.servers.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.servers.model import Place

KEEPER = Path(__file__).with_name("keeper.py")
PORT_TRIES = 5
PAUSE = 0.01


@dataclass(frozen=True)
class Command:
    """How a server is run: never as root unless it is our own code, in `cwd`, ended with the signal `stop`."""

    argv: Sequence[str | Path]
    cwd: Path
    env: Mapping[str, str]
    stop: signal.Signals = signal.SIGTERM
    is_ours: bool = False
    """It is this interpreter and our own code, which another user may not be allowed to read."""


def serve(
    place: Place, command: Callable[[int], Command], ready: Callable[[int], str | None], patience: float = 30
) -> tuple[int, str]:
    """Run `command(port)` on a free port until `ready(port)` gives its version; return both.

    Raises NotHere, with the end of the server's log, when it dies or stays silent for `patience` seconds.
    """
    for _ in range(PORT_TRIES):
        port = free_port()
        if version := _try(place, command(port), port, ready, patience):
            return port, version
        if "in use" not in log(place.directory):
            break
    raise _did_not_start(place)


def resume(place: Place, command: Command, port: int, ready: Callable[[int], str | None], patience: float = 30) -> None:
    """Run a server that was served here and stopped, again, on the port that it had."""
    if not _try(place, command, port, ready, patience):
        raise _did_not_start(place)


def _try(place: Place, command: Command, port: int, ready: Callable[[int], str | None], patience: float) -> str | None:
    """The version once it is ready; None, and it is stopped, when it dies or stays silent."""
    _launch(place, command)
    deadline = time.monotonic() + patience
    while alive(place.directory) and time.monotonic() < deadline:
        if version := ready(port):
            return version
        time.sleep(PAUSE)
    stop(place.directory)
    return None


def _did_not_start(place: Place) -> NotHere:
    return NotHere(f"It did not start; its log ends with: {log(place.directory)[-2000:].strip() or '(nothing)'}")


def _launch(place: Place, command: Command) -> None:
    spec = {
        "argv": [os.fspath(part) for part in command.argv],
        "cwd": os.fspath(command.cwd),
        "env": dict(command.env),
        "stop": int(command.stop),
        "user": unprivileged.NOBODY if unprivileged.root() and not command.is_ours else None,
        "log": os.fspath(place.directory / "log"),
        "owner": os.fspath(place.owner),
    }
    path = place.directory / "spec.json"
    path.write_text(json.dumps(spec))
    keeper = subprocess.run(
        [sys.executable, "-I", "-S", KEEPER, path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,  # Ctrl-C is for pytest, which then ends the keeper in its own time
        check=False,
    )
    if not keeper.stdout.strip():
        raise NotHere(f"It could not be run: {(keeper.stderr.strip().splitlines() or ['(no reason given)'])[-1]}")


def log(directory: Path) -> str:
    """What the server has written so far."""
    try:
        return (directory / "log").read_text(errors="replace")
    except FileNotFoundError:
        return ""


def alive(directory: Path) -> bool:
    """Whether a keeper, and so its server, lives in this directory."""
    return held(directory / "alive")


def stop(directory: Path, patience: float = 15) -> None:
    """End the server of this directory, if there is one, and return when it has ended."""
    deadline = time.monotonic() + patience
    if alive(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((directory / "alive").read_text()), signal.SIGTERM)
    while alive(directory) and time.monotonic() < deadline:
        time.sleep(PAUSE)
