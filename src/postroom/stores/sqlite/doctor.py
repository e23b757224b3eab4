"""What at a SQLite weakens what Postroom promises, for `postroom doctor`."""

from __future__ import annotations

import logging
import sqlite3
from functools import cache

log = logging.getLogger("postroom.stores.sqlite")

WAL_RESET_FIXED = (3, 51, 3)
WAL_RESET_FIXED_TOO = ((3, 44, 6), (3, 50, 7))
"""Older lines that got the same fix."""
WAL_RESET_REMEDY = (
    "Run a Python that links SQLite 3.51.3 or later (upgrade the system's libsqlite3, or take a newer build of Python; "
    "`python -c 'import sqlite3; print(sqlite3.sqlite_version)'` shows which it is). Until then let one process do all the "
    "writing, with the relay inside it: see docs/how-to/use-with-fastapi.md."
)


async def weaknesses(url: str) -> list[str]:  # noqa: ARG001 - it is the library, not the file
    """A sentence for each, with the remedy; none when it is fine."""
    return judge(sqlite3.sqlite_version_info)


def judge(version: tuple[int, int, int]) -> list[str]:
    """What is wrong with a SQLite of this version.

    >>> judge((3, 51, 3)), len(judge((3, 40, 1)))
    ([], 1)
    """
    if not has_wal_reset_defect(version):
        return []
    has = ".".join(map(str, version))
    found = (
        f"This Python links SQLite {has}, which can corrupt a file that several processes write (the WAL-reset defect)."
    )
    return [f"{found} {WAL_RESET_REMEDY}"]


def has_wal_reset_defect(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Does this SQLite have the defect by which two processes that write and checkpoint at once can corrupt the file?

    It is in every version from 3.7.0 on; fixed in 3.51.3, and in the older lines from 3.50.7 and 3.44.6.

    >>> has_wal_reset_defect((3, 40, 1)), has_wal_reset_defect((3, 51, 3)), has_wal_reset_defect((3, 50, 7))
    (True, False, False)
    """
    if version >= WAL_RESET_FIXED:
        return False
    return not any(version[:2] == fixed[:2] and version >= fixed for fixed in WAL_RESET_FIXED_TOO)


@cache
def warn_of_wal_reset_defect() -> None:
    """Say it once per process, where it is so."""
    if has_wal_reset_defect():
        log.warning(
            "This Python links SQLite %s, which has the WAL-reset defect: when several processes write the same file, it "
            "can be corrupted. %s",
            sqlite3.sqlite_version,
            WAL_RESET_REMEDY,
        )
