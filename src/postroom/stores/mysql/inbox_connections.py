"""Connections for handlers, each in a transaction of its handler's: asyncmy's for async handlers, PyMySQL's for sync ones.

They are the drivers' own, as a service would open them, but for READ COMMITTED: what a handler reads is not converted in our
way, and it may be idle in its transaction for as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import asyncmy
from asyncmy import errors

from postroom.errors import MissingDependency, StoreError
from postroom.handles.mysql import IN_TRANSACTION
from postroom.stores.mysql.connections import (
    AT_ONCE,
    CONNECT_TIMEOUT_SECONDS,
    Connections,
    begun,
    keep_alive,
    link,
    roll_back,
)
from postroom.stores.mysql.errors import is_lost
from postroom.stores.sql.mysql_server import version_of

if TYPE_CHECKING:
    import pymysql

HOW: dict[str, Any] = {"charset": "utf8mb4", "autocommit": True, "connect_timeout": CONNECT_TIMEOUT_SECONDS}
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


class HandlerConnection(asyncmy.Connection):
    """Notes that it was closed while it worked: by its handler, or because a statement was cancelled midway. The driver itself
    closes one that broke too."""

    was_closed = False

    def close(self) -> None:
        self._note()
        super().close()

    async def ensure_closed(self) -> None:
        self._note()
        await super().ensure_closed()

    def _note(self) -> None:
        is_broken: bool = getattr(self, "_stream_broken", False)  # the driver's types do not know it
        self.was_closed = self.was_closed or not (is_gone(self) or is_broken)


class HandlerConnections:
    """A small pool. What went wrong once is not used again: a handler may have left anything behind."""

    def __init__(self, others: Connections) -> None:
        self._others = others
        self._idle: list[HandlerConnection] = []
        # Handlers may take long. A relay on the same store must not wait for them.
        self._turn, self._closed = asyncio.Semaphore(AT_ONCE), False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[HandlerConnection]:
        """A connection inside a transaction; what is raised inside comes out as it is, after the rollback."""
        async with self._turn:
            connection = await self._begun()
            try:
                yield connection
            except BaseException:
                await roll_back(connection)
                connection.close()
                raise
            await self._commit(connection)
            await self._give_back(connection)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.ensure_closed()

    async def _begun(self) -> HandlerConnection:
        if self._closed:
            raise _closed(self._others)
        try:
            while self._idle:
                try:
                    return await begun(self._idle.pop(), True)
                except errors.MySQLError as exc:
                    # The server ended it while it was idle. Nothing was begun, so a new one will do.
                    if not is_lost(exc):
                        raise
            return await begun(await self._open(), True)
        except (errors.MySQLError, OSError) as exc:
            raise self._others.translated(exc) from exc
        except RuntimeError as exc:  # a way to log in that the driver knows only with another package
            raise StoreError(f"The driver cannot log in to {self._others.shown}: {exc}.") from exc

    async def _open(self) -> HandlerConnection:
        make: type[Any] = HandlerConnection  # the driver's own has no types
        connection: HandlerConnection = make(**self._others.address.parameters, **HOW)
        await connection.connect()
        try:
            keep_alive(link(connection).get_extra_info("socket"))
            version_of(connection.get_server_info(), self._others.shown)
            await connection.cursor().execute(ISOLATION)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _commit(self, connection: HandlerConnection) -> None:
        try:
            # An error does not say whether the transaction outlived it, and a handler may have kept one to itself: after a
            # deadlock there is nothing left to commit, and COMMIT would call that no error.
            await connection.ping(reconnect=False)
            if not is_open(connection):
                raise _ended()
            await connection.commit()
        except errors.MySQLError as exc:
            connection.close()
            raise self._others.translated(exc) from exc
        except BaseException:
            connection.close()  # nobody knows; it must not be used again
            raise

    async def _give_back(self, connection: HandlerConnection) -> None:
        if self._closed:
            await connection.ensure_closed()
        elif not is_gone(connection):
            self._idle.append(connection)


class BlockingConnections:
    """The same for sync handlers, each used by one thread at a time."""

    def __init__(self, others: Connections) -> None:
        self._others = others
        self._idle: list[pymysql.Connection[Any]] = []
        self._lock, self._closed = Lock(), False

    @contextmanager
    def transaction(self) -> Iterator[pymysql.Connection[Any]]:
        """A connection inside a transaction; what is raised inside comes out as it is, after the rollback."""
        connection = self._begun()
        try:
            yield connection
        except BaseException:
            with suppress(Exception):  # of a connection that is gone, the server rolls back by itself
                connection.rollback()
            _close(connection)
            raise
        self._commit(connection)
        self._give_back(connection)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def _begun(self) -> pymysql.Connection[Any]:
        if self._closed:
            raise _closed(self._others)
        driver = _driver()
        try:
            while (idle := self._take()) is not None:
                try:
                    return _begun(idle)
                except driver.MySQLError as exc:
                    # The server ended it while it was idle. Nothing was begun, so a new one will do.
                    if not is_lost(exc):
                        raise
            return _begun(self._open(driver))
        except (driver.MySQLError, OSError) as exc:
            raise self._others.translated(exc) from exc
        except RuntimeError as exc:  # a way to log in that the driver knows only with another package
            raise StoreError(f"The driver cannot log in to {self._others.shown}: {exc}.") from exc

    def _take(self) -> pymysql.Connection[Any] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _open(self, driver: Any) -> pymysql.Connection[Any]:
        connection = driver.connect(**self._others.address.parameters, **HOW)
        try:
            keep_alive(connection._sock)  # noqa: SLF001 - the driver shows its socket in no other way
            version_of(connection.get_server_info(), self._others.shown)
            with connection.cursor() as cursor:
                cursor.execute(ISOLATION)
        except BaseException:
            _close(connection)
            raise
        opened: pymysql.Connection[Any] = connection
        return opened

    def _commit(self, connection: pymysql.Connection[Any]) -> None:
        try:
            # As for async handlers: only a new answer of the server says whether there is something to commit.
            connection.ping(reconnect=False)
            if not is_open(connection):
                raise _ended()
            connection.commit()
        except _driver().MySQLError as exc:
            _close(connection)
            raise self._others.translated(exc) from exc
        except BaseException:
            _close(connection)  # nobody knows; it must not be used again
            raise

    def _give_back(self, connection: pymysql.Connection[Any]) -> None:
        if self._closed or not connection.open:
            _close(connection)
            return
        with self._lock:
            self._idle.append(connection)


def is_open(connection: Any) -> bool:
    """Did the server say last that a transaction is open?"""
    return bool(connection.server_status & IN_TRANSACTION)


def is_gone(connection: Any) -> bool:
    """Is the connection closed, by whomever? For async handlers' ones."""
    end = link(connection)
    return end is None or end.is_closing()


def _begun(connection: pymysql.Connection[Any]) -> pymysql.Connection[Any]:
    """The connection in a transaction; closed when that fails."""
    try:
        connection.begin()
    except BaseException:
        _close(connection)
        raise
    return connection


def _close(connection: pymysql.Connection[Any]) -> None:
    with suppress(Exception):  # closed already, by the driver or the server
        connection.close()


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as exc:
        raise MissingDependency(
            "Sync handlers on MariaDB and MySQL need the driver PyMySQL, which is not installed: run `pip install PyMySQL`, "
            "or write async handlers.",
            package="PyMySQL",
        ) from exc
    return pymysql


def _closed(connections: Connections) -> StoreError:
    return StoreError(f"The store at {connections.shown} is closed: open it again.")


def _ended() -> StoreError:
    """The transaction was over when it was to be committed."""
    return StoreError(
        "The transaction was over before its end: the handler ended it, or went on after a deadlock, which rolls back all "
        "of it; leave commit and rollback to the inbox, and let errors out."
    )
