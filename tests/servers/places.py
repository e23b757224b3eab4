"""Where the files of servers go, and what killed runs left there."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.servers import unprivileged
from tests.servers.locks import held

MEMORY = Path("/dev/shm")
ENOUGH = 2 * 1024**3
PREFIX = "postroom-servers-"
GRACE = 60.0


def public_temp() -> Path:
    """A directory for temporary files that the user who runs the servers can enter."""
    usual = Path(tempfile.gettempdir())
    choices = (usual, Path("/tmp"), Path("/var/tmp"))
    return next((path for path in choices if unprivileged.readable(path)), usual)


def new_directory() -> Path:
    """A new directory for a run: in memory if there is enough, where a database is made in a tenth of the time."""
    base = MEMORY if "TMPDIR" not in os.environ and _roomy(MEMORY) else public_temp()
    _sweep(base)
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
    directory.chmod(0o711)  # the servers' user must pass through it
    return directory


def _roomy(directory: Path) -> bool:
    try:
        facts = os.statvfs(directory)
    except OSError:
        return False
    return facts.f_bavail * facts.f_frsize >= ENOUGH and os.access(directory, os.W_OK)


def _sweep(base: Path) -> None:
    """Remove what runs left that were killed together with their keepers, or before they had any."""
    for path in base.glob(f"{PREFIX}*"):
        # Looking at a lock of our own would free it; and a run that just begins has not locked yet.
        if path.name.startswith(f"{PREFIX}{os.getpid()}-"):
            continue
        try:
            facts = path.stat()
            abandoned = facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > GRACE
        except FileNotFoundError:
            continue
        if abandoned and not held(path / "owner"):
            shutil.rmtree(path, ignore_errors=True)
