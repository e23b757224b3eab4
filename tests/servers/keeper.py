"""The keeper: a small process that is the parent of one server and never outlives the test run.

It is run by path, as `python -I -S keeper.py spec.json`, with nothing but the standard library. It promises:
- the server is its child, and on Linux dies with it (PR_SET_PDEATHSIG, set by its only thread);
- it waits, without polling, for a lock that the owner of the run holds. The kernel frees that lock however
  the owner ends, SIGKILL included, and a reused process id cannot fool it. Then the server and its files go;
- on SIGTERM it ends the server and leaves the files to whoever asked;
- while it lives it holds a lock on the file `alive`, with its process id, for anybody to see.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PATIENCE = 10.0


class Ended(BaseException):
    """The server ended by itself, or somebody asked for its end."""


def dies_with_parent(number: int) -> Callable[[], None]:
    """What the child runs before exec, so that the kernel sends it signal `number` when this process dies."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def arrange() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl could see it
            os._exit(1)

    return arrange


def launch(spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    user = spec["user"]
    with Path(spec["log"]).open("wb") as log:
        return subprocess.Popen(
            spec["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=spec["cwd"],
            env=spec["env"],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            start_new_session=True,
            preexec_fn=dies_with_parent(spec["stop"]),  # noqa: PLW1509 - there are no other threads
        )


def end(server: subprocess.Popen[bytes], number: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if server.poll() is None:
        server.send_signal(number)
    try:
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def sweep(directory: Path) -> None:
    """Remove the server's files, and with the last server the directory of the run: its owner is gone."""
    shutil.rmtree(directory, ignore_errors=True)
    if not any(entry.is_dir() for entry in directory.parent.iterdir()):
        shutil.rmtree(directory.parent, ignore_errors=True)


def keep(directory: Path, spec: dict[str, Any]) -> None:
    def ended(number: int, _frame: object) -> None:
        if number == signal.SIGTERM or server.poll() is not None:
            raise Ended

    with (directory / "alive").open("w") as alive, Path(spec["owner"]).open() as owner:
        alive.write(str(os.getpid()))
        alive.flush()
        fcntl.lockf(alive, fcntl.LOCK_EX)
        server = launch(spec)
        try:
            signal.signal(signal.SIGTERM, ended)
            signal.signal(signal.SIGCHLD, ended)
            print("launched", flush=True)
            quiet = os.open(os.devnull, os.O_RDWR)
            os.dup2(quiet, 1)  # whoever started us reads until we close these
            os.dup2(quiet, 2)
            ended(signal.SIGCHLD, None)
            fcntl.lockf(owner, fcntl.LOCK_SH)
        except Ended:
            end(server, spec["stop"])
        else:
            end(server, spec["stop"])
            sweep(directory)


if __name__ == "__main__" and os.fork() == 0:
    keep(Path(sys.argv[1]).parent, json.loads(Path(sys.argv[1]).read_text()))
