"""What SQLite said, by its code: whose fault is it? https://sqlite.org/rescode.html."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from postroom.config.tables import TableNames
from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.sql.migrations import missing

BUSY_TIMEOUT_SECONDS = 10
"""How long to wait for another process's write. The busy handler is not fair: be patient."""
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
"""Others write."""
SHUT = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
"""The file cannot be opened, or not be written to."""
DISK = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_IOERR: "the disk fails: check it",
    sqlite3.SQLITE_NOMEM: "the memory is full: free some",
}
"""The machine cannot, for now."""
BROKEN = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
"""Waiting fixes nothing."""


def is_not_now(exc: sqlite3.Error) -> bool:
    """Can it not be written to now, so that a new connection may find it otherwise? Who only waits for others may stay."""
    code = _code(exc)
    return code in SHUT or code in DISK


def is_full_or_failing(exc: sqlite3.Error) -> bool:
    """Is it the machine, whichever file was written to?"""
    return _code(exc) in DISK


def translated(exc: sqlite3.Error, path: Path, tables: TableNames) -> StoreError:
    """What the driver said, as one sentence and a remedy."""
    code, said = _code(exc), str(exc)
    if code in BUSY:
        return StoreUnavailable(
            f"{path} is locked by another process for longer than {BUSY_TIMEOUT_SECONDS} s: "
            "look for a transaction that is left open.",
            path=str(path),
        )
    if code in SHUT:
        return StoreUnavailable(
            f"{path} cannot be opened for writing ({said}): check that its folder exists and is yours.", path=str(path)
        )
    if code in DISK:
        return StoreUnavailable(f"{path} cannot be written to now ({said}); {DISK[code]}.", path=str(path))
    if code in BROKEN:
        return StoreError(f"{path} is not a healthy SQLite database ({said}).", path=str(path))
    if code == sqlite3.SQLITE_ERROR and "no such table" in said:
        return missing(f"sqlite:///{path}", tables)
    return StoreError(f"SQLite refused: {said}.", path=str(path))


def _code(exc: sqlite3.Error) -> int:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF
