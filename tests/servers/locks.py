"""Two kinds of file lock. The kernel frees both however their holder ends."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def flocked(path: Path) -> Iterator[None]:
    """Hold the only lock on `path`, among threads as among processes."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def held(path: Path) -> bool:
    """Whether *another* process holds the record lock on `path`. Never ask about one that this process holds.

    A record lock belongs to one process: a forked child neither inherits it nor keeps it alive. But its holder
    loses it as soon as it closes the file anywhere, and this function closes it.
    """
    try:
        with path.open() as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
