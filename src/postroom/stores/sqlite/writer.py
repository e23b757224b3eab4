"""One thread that owns the connection; one hop per transaction.

SQLite has one writer at a time anyway. A transaction is a plain function that runs in the thread from BEGIN IMMEDIATE to
COMMIT, so the event loop waits for one hop, not for one per statement.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from postroom.errors import StoreError, StoreUnavailable
from postroom.stores._migrate import missing
from postroom.stores._put import line_hash
from postroom.tables import TableNames

Result = TypeVar("Result")
BUSY_TIMEOUT_SECONDS = 10
"""How long to wait for another process's write. The busy handler is not fair: be patient."""
VERSION_MIN = (3, 37, 0)
"""STRICT tables need 3.37."""


class Writer:
    """The thread and its connection. The connection is opened by the first transaction."""

    def __init__(self, path: Path, tables: TableNames) -> None:
        self._path = path
        self._tables = tables
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="postroom-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        # A transaction that spans several hops must not have another's statements in its middle.
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run *work* in one transaction: committed when it returns, rolled back when it raises."""
        async with self._turn:
            return await self._hop(self._whole, work)

    async def create(self) -> None:
        """Make the file if there is none. Nothing else does: a mistyped path must not leave an empty database behind."""
        async with self._turn:
            await self._hop(self._open, True)

    async def read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run *work* on one snapshot, taking no write lock."""
        async with self._turn:
            return await self._hop(self._whole, work, "BEGIN")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Hold a transaction open over several hops (see `step`)."""
        async with self._turn:
            try:
                await self._hop(self._begin, "BEGIN IMMEDIATE")
                yield
            except BaseException:
                await self._hop_through(self._end, "ROLLBACK")
                raise
            await self._hop_through(self._end, "COMMIT")

    async def step(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run *work* inside the transaction that is open."""
        return await self._hop(lambda: work(self._open()))

    async def close(self) -> None:
        """Close the connection and end the thread. Twice is once."""
        if not self._closed:
            closing = self._submit(self._close)
            self._closed = True
            self._thread.shutdown(wait=False)
            await asyncio.wrap_future(closing)

    async def _hop(self, work: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.wrap_future(self._submit(work, *args))

    async def _hop_through(self, work: Callable[..., Result], *args: Any) -> Result:
        """A hop that is made even when its caller is cancelled: else the transaction would stay open."""
        return await asyncio.shield(asyncio.wrap_future(self._submit(work, *args)))

    def _submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        if self._closed:
            raise StoreError(f"The store on {self._path} is closed: open it anew.", path=str(self._path))

        def mapped() -> Result:
            try:
                return work(*args)
            except sqlite3.Error as exc:
                raise self.translated(exc) from exc

        return self._thread.submit(mapped)

    def _whole(self, work: Callable[[sqlite3.Connection], Result], begin: str = "BEGIN IMMEDIATE") -> Result:
        try:
            return self._once(work, begin)
        except sqlite3.OperationalError as exc:
            if "Could not decode to UTF-8" not in str(exc):
                raise
            # A stranger wrote what is no text into a text. It must not hide the others: read it as well as can be.
            self._open().text_factory = _as_well_as_can_be
            return self._once(work, begin)

    def _once(self, work: Callable[[sqlite3.Connection], Result], begin: str) -> Result:
        self._begin(begin)
        try:
            result = work(self._open())
        except BaseException:
            self._end("ROLLBACK")
            raise
        self._end("COMMIT")
        return result

    def _begin(self, how: str) -> None:
        self._open().execute(how)

    def _end(self, how: str) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute(how)
            except sqlite3.Error:
                connection.rollback()
                raise

    def _open(self, create: bool = False) -> sqlite3.Connection:
        if self._connection is None:
            if not create and not self._path.exists():
                raise missing(f"sqlite:///{self._path}", self._tables)
            self._connection = connect(self._path)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def translated(self, exc: sqlite3.Error) -> StoreError:
        """What SQLite said, by its code."""
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreUnavailable(
                f"{self._path} is locked by another process for longer than {BUSY_TIMEOUT_SECONDS} s: "
                "look for a transaction that is left open.",
                path=str(self._path),
            )
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return StoreUnavailable(
                f"{self._path} cannot be opened for writing ({exc}): check that its folder exists and is yours.",
                path=str(self._path),
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return StoreError(f"{self._path} is no healthy SQLite database ({exc}).", path=str(self._path))
        if code == sqlite3.SQLITE_ERROR and "no such table" in str(exc):
            return missing(f"sqlite:///{self._path}", self._tables)
        return StoreError(f"SQLite refused: {exc}.", path=str(self._path))


def _as_well_as_can_be(text: bytes) -> str:
    return text.decode(errors="replace")


def connect(path: Path) -> sqlite3.Connection:
    """A connection as the outbox needs it: durable commits, and transactions that begin when we say so."""
    if sqlite3.sqlite_version_info < VERSION_MIN:
        needed = ".".join(map(str, VERSION_MIN))
        raise StoreError(f"This Python links SQLite {sqlite3.sqlite_version}; Postroom needs {needed} or later.")
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        mode = _use_wal(connection)
        if mode != "wal":
            raise StoreError(
                f"{path} refuses write-ahead logging (it is in mode {mode!r}): keep it on a local disk, not on a network.",
                path=str(path),
            )
        # NORMAL may lose the last commits when the power fails; a message sent and then forgotten is a ghost.
        connection.execute("PRAGMA synchronous = FULL")
        connection.create_function("postroom_hash", 1, line_hash, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> str:
    """Turn write-ahead logging on, or learn that it is. Of two that turn it on at once in a new file, SQLite tells one that
    the file is locked and does not wait: so we do."""
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
