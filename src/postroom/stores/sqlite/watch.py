"""Noticing commits of any process: SQLite counts them, and reading the count costs a few microseconds and no query."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from postroom.errors import StoreUnavailable
from postroom.stores.sqlite.connections import FileConnection, file_of

LOOK_SECONDS = 0.005
LOOKS_AT_THE_FILE = 100
"""Every so many looks, twice a second, it is asked whether it is still the same file."""


async def watch(path: Path, woken: Callable[[], None]) -> None:
    """Call *woken* after each commit to this file, of this process or another; until cancelled."""
    loop = asyncio.get_running_loop()
    stopping = threading.Event()

    def tell() -> None:
        if not stopping.is_set():
            loop.call_soon_threadsafe(woken)

    # A thread of its own: it mostly sleeps, and a hop to a shared one for every look would cost more than the look.
    watching = loop.run_in_executor(None, _look, path, stopping, tell)
    try:
        await asyncio.shield(watching)
    except sqlite3.Error as exc:
        raise StoreUnavailable(
            f"{path} cannot be watched: {exc}; Postroom polls it meanwhile.", path=str(path)
        ) from exc
    finally:
        stopping.set()


def _look(path: Path, stopping: threading.Event, tell: Callable[[], None]) -> None:
    file = file_of(path)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, factory=FileConnection)
    connection.file = file
    try:
        seen, looks = None, 0
        while not stopping.is_set():
            looks += 1
            if looks % LOOKS_AT_THE_FILE == 0 and connection.is_replaced(path):
                raise sqlite3.OperationalError("it was replaced by another file, or is gone")
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != seen:
                seen = version
                tell()
            stopping.wait(LOOK_SECONDS)
    finally:
        connection.close()
