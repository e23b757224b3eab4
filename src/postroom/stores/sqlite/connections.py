"""Connections: one thread owns the store's connection, and a transaction is one hop to it.

SQLite has one writer at a time anyway. A transaction is a plain function that runs in the thread from BEGIN IMMEDIATE to
COMMIT, so the event loop waits for one hop, not for one per statement. Handlers have connections of their own, in
`blocking_connections.py`.

A connection knows which file it has open: after a restore, the file under its name is another one. A program that stays
on the old file reads and writes what no other program sees any more, and all looks well.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from postroom.config.tables import TableNames
from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.sql.insert import line_hash
from postroom.stores.sql.migrations import missing
from postroom.stores.sqlite.errors import BUSY_TIMEOUT_SECONDS, is_not_now, translated

Result = TypeVar("Result")
FileId: TypeAlias = tuple[int, int]
"""A file by its device and number. No other file gets the number while this one is open."""
VERSION_MIN = (3, 37, 0)
"""STRICT tables need 3.37."""


class FileConnection(sqlite3.Connection):
    """The driver's connection, with the file that stood under its name when it was opened."""

    file: FileId | None = None

    def is_replaced(self, path: Path) -> bool:
        """Return True when another file stands under this name now, or none. It looks at the folder and runs no query."""
        return self.file is not None and file_of(path) != self.file


def file_of(path: Path) -> FileId | None:
    """Return the file under this name; None when there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


class Writer:
    """The thread and its connection. The connection is opened by the first transaction."""

    def __init__(self, path: Path, tables: TableNames) -> None:
        self.path, self.shown = path, f"sqlite:///{path}"
        self.tables = tables
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="postroom-sqlite")
        self._connection: FileConnection | None = None
        self._closed = self._replaced = False
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
        """Run *work* inside the transaction that is open. StoreUnavailable when an error has ended it: on its own, each
        statement would commit by itself."""
        return await self._hop(lambda: work(self._begun()))

    def _begun(self) -> sqlite3.Connection:
        if self._connection is None or not self._connection.in_transaction:
            raise StoreUnavailable(f"The transaction on {self.path} was ended by an error: begin a new one.")
        return self._connection

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
            raise StoreError(f"The store on {self.path} is closed: open it again.", path=str(self.path))

        def mapped() -> Result:
            try:
                return work(*args)
            except sqlite3.Error as exc:
                if is_not_now(exc) or self._replaced:
                    self._close()  # a new one may be let write
                raise self.translated(exc) from exc

        return self._thread.submit(mapped)

    def _whole(self, work: Callable[[sqlite3.Connection], Result], begin: str = "BEGIN IMMEDIATE") -> Result:
        try:
            return self._once(work, begin)
        except sqlite3.OperationalError as exc:
            if "Could not decode to UTF-8" not in str(exc):
                raise
            # A stranger wrote what is not a text into a text. It must not hide the others: read it as well as can be.
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
        self._replaced = False  # the new file is whole
        return result

    def _begin(self, how: str) -> None:
        self._notice_a_restore()
        self._open().execute(how)

    def _notice_a_restore(self) -> None:
        """Let go of a file that is not under its name any more. What was said of the old one is not so of the new one:
        whoever asked begins again."""
        if self._connection is not None and self._connection.is_replaced(self.path):
            self._close()
            self._replaced = True
            raise StoreUnavailable(f"{self.path} was replaced by another file, or is gone: it is opened again.")

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
            if not create and not self.path.exists():
                if self._replaced:
                    raise StoreUnavailable(f"{self.path} is gone: Postroom waits for it.", path=str(self.path))
                raise missing(self.shown, self.tables)
            self._connection = connect(self.path)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def translated(self, exc: sqlite3.Error) -> StoreError:
        """What SQLite said, by its code."""
        said = translated(exc, self.path, self.tables)
        if self._replaced and not said.transient:
            # It may not be whole yet: a copy takes its time.
            return StoreUnavailable(
                f"{said} It was replaced while it was open: Postroom waits for it.", path=str(self.path)
            )
        return said


def _as_well_as_can_be(text: bytes) -> str:
    return text.decode(errors="replace")


def connect(path: Path) -> FileConnection:
    """A connection as the outbox needs it: durable commits, and transactions that begin when we say so."""
    if sqlite3.sqlite_version_info < VERSION_MIN:
        needed = ".".join(map(str, VERSION_MIN))
        raise StoreError(f"This Python links SQLite {sqlite3.sqlite_version}; Postroom needs {needed} or later.")
    # Before it is opened: at worst it is opened once more for nothing.
    file = file_of(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, factory=FileConnection
    )
    connection.file = file
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
