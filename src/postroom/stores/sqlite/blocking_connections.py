"""Connections for handlers, async and sync: each is used by one handler at a time.

One transaction writes at a time. To begin waits for others and to commit waits for the disk, so both run in a thread; what is
between runs where the handler runs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Lock

from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.sqlite.connections import FileConnection, Writer, connect
from postroom.stores.sqlite.errors import is_full_or_failing, is_not_now


class BlockingConnections:
    """A small pool. Async handlers take turns, and so do sync ones: a relay waits in the writer's thread, not for a turn."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._idle: list[FileConnection] = []
        self._closed = False
        self._turn, self._blocking_turn = asyncio.Lock(), Lock()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[FileConnection]:
        """Yield a connection inside a transaction for an async handler; what is raised inside comes out as it is."""
        async with self._turn:
            connection = await self._begin_elsewhere()
            try:
                yield connection
            except BaseException as exc:
                self._give_up(connection, exc)
                raise
            await asyncio.shield(asyncio.to_thread(self._commit, connection))

    @contextmanager
    def blocking(self) -> Iterator[FileConnection]:
        """Yield a connection inside a transaction for a sync handler, in its thread."""
        with self._blocking_turn:
            connection = self._begin()
            try:
                yield connection
            except BaseException as exc:
                self._give_up(connection, exc)
                raise
            self._commit(connection)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        self._forget()

    async def _begin_elsewhere(self) -> FileConnection:
        begun = asyncio.ensure_future(asyncio.to_thread(self._begin))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            # It begins all the same, and must not stay open.
            begun.add_done_callback(self._roll_back_begun)
            raise

    def _roll_back_begun(self, begun: asyncio.Future[FileConnection]) -> None:
        if begun.exception() is None:
            self._roll_back(begun.result())

    def _begin(self) -> FileConnection:
        try:
            connection = self._take()
        except sqlite3.Error as exc:
            raise self._writer.translated(exc) from exc
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as exc:
            connection.close()
            raise self._writer.translated(exc) from exc
        return connection

    def _take(self) -> FileConnection:
        path = self._writer.path
        if self._closed:
            raise StoreError(f"The store on {path} is closed: open it again.", path=str(path))
        # Async and sync handlers begin in different threads: to look first and take then would be a race.
        with suppress(IndexError):
            while True:
                if not (connection := self._idle.pop()).is_replaced(path):
                    return connection
                connection.close()
        if not path.exists():  # to connect would make an empty file
            raise StoreUnavailable(f"{path} is gone: Postroom waits for it.", path=str(path))
        return connect(path)

    def _commit(self, connection: FileConnection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as exc:
            self._roll_back(connection)
            if is_not_now(exc):
                self._forget()
            raise self._writer.translated(exc) from exc
        self._give_back(connection)

    def _give_up(self, connection: FileConnection, exc: BaseException) -> None:
        """Roll back. Where the database or its disk failed, use no connection from before that, and say so."""
        # SQLite rolls back by itself then, which looks as if the handler had done so: what it raised is the cause.
        said = exc if isinstance(exc, sqlite3.Error) else exc.__cause__
        disk = said if isinstance(said, sqlite3.Error) and is_full_or_failing(said) else None
        if disk is None and not isinstance(exc, StoreUnavailable):
            self._roll_back(connection)
            return
        with suppress(sqlite3.Error):
            connection.close()
        self._forget()
        if disk is not None and not isinstance(exc, StoreUnavailable):
            raise self._writer.translated(disk) from exc

    def _forget(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _roll_back(self, connection: FileConnection) -> None:
        with suppress(sqlite3.Error):
            connection.rollback()
        if is_open(connection):
            self._give_back(connection)

    def _give_back(self, connection: FileConnection) -> None:
        self._idle.append(connection)
        if self._closed:  # looked at after the append: whoever closes meanwhile finds it, or we do
            self._forget()


def is_open(connection: sqlite3.Connection) -> bool:
    """Return True while the connection can be used, False when its handler closed it. sqlite3 has no other way to ask."""
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False
