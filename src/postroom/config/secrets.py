"""Files that hold secrets: read only when not everybody can."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from postroom.errors import ConfigError


def read_private(path: Path) -> str:
    """What the file says, without white space at the ends; ConfigError, naming it, unless it is private, text and not empty."""
    try:
        # Not blocking, because a named pipe would keep us here until somebody writes to it.
        with open(path, encoding="utf-8", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"{path} is not a regular file.")
            if mode & stat.S_IROTH:
                raise ConfigError(f"{path} can be read by everybody; run: chmod o-r {path}.")
            secret = file.read().strip()
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text in UTF-8.") from None
    if not secret:
        raise ConfigError(f"{path} is empty.")
    return secret


def read_lines(path: Path) -> tuple[str, ...]:
    """The lines of such a file, without the empty ones."""
    return tuple(line.strip() for line in read_private(path).splitlines() if line.strip())


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
