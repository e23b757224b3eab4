"""What at a SQLite weakens what Postroom promises, for `postroom doctor`."""

from __future__ import annotations

import sqlite3

from postroom.stores.sqlite.schema import WAL_RESET_REMEDY, has_wal_reset_defect


async def weaknesses(url: str) -> list[str]:  # noqa: ARG001 - it is the library, not the file
    """A sentence for each, with the remedy; none when it is fine."""
    return judge(sqlite3.sqlite_version_info)


def judge(version: tuple[int, int, int]) -> list[str]:
    """The same of a SQLite of this version.

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
