"""Servers refuse to run as root: when we are root, they run as nobody. Only what we made is chmodded."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NOBODY = 65534


def root() -> bool:
    return os.geteuid() == 0


def run(
    argv: Sequence[str | Path],
    cwd: str | Path = "/",
    env: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a short command, as nobody when we are root. It does not raise when the command fails."""
    user = NOBODY if root() else None
    return subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def environment(**more: str) -> dict[str, str]:
    """A small environment for servers: no PG* variable, secret or language of the user leaks into them."""
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    return kept | {"LC_ALL": "C"} | {key: value for key, value in more.items() if value}


def private(directory: Path) -> Path:
    """Create a directory that only the user who runs the servers may enter."""
    directory.mkdir(mode=0o700)
    give(directory)
    return directory


def give(path: Path) -> None:
    """Make `path`, which is ours, belong to the user who runs the servers."""
    if root():
        os.chown(path, NOBODY, NOBODY)


def readable(*paths: Path) -> bool:
    """Whether the user who runs the servers can read all of these."""
    script = 'for path; do [ -r "$path" ] || exit 1; done'
    return run(["/bin/sh", "-c", script, "sh", *paths]).returncode == 0
