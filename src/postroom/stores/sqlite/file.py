"""A connection that knows which file it has open: the one under its name may be another by now, after a restore.

Whoever stays on the old one reads and writes what nobody else sees any more, and all looks well.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeAlias

from postroom.errors import StoreUnavailable

FileId: TypeAlias = tuple[int, int]
"""A file by its device and number. No other gets the number while somebody has this one open."""


class FileConnection(sqlite3.Connection):
    """As the driver's, with the file that stood under its name when it was opened."""

    file: FileId | None = None

    def is_replaced(self, path: Path) -> bool:
        """Is there another file under this name now, or none? It costs a look at the folder, and no query."""
        return self.file is not None and file_of(path) != self.file


def must_be_there(path: Path) -> None:
    """Raise StoreUnavailable when there is no file: to connect would make an empty one."""
    if not path.exists():
        raise StoreUnavailable(f"{path} is gone: it is waited for.", path=str(path))


def file_of(path: Path) -> FileId | None:
    """The file under this name; None when there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
