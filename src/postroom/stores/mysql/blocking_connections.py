"""Connections for sync handlers, by PyMySQL, each used by one thread at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from postroom.config.tables import TableNames
from postroom.errors import MissingDependency, StoreError
from postroom.stores.mysql.connection import KEEPALIVE
from postroom.stores.mysql.connections import CONNECT_TIMEOUT_SECONDS
from postroom.stores.mysql.errors import is_lost, translated
from postroom.stores.mysql.inbox_connections import ISOLATION, closed, ended, is_open
from postroom.stores.mysql.url import MySQLUrl
from postroom.stores.sql.mysql_server import version_of

if TYPE_CHECKING:
    from pymysql import Connection


class BlockingConnections:
    """A small pool. What went wrong once is not used again: a handler may have left anything behind."""

    def __init__(self, address: MySQLUrl, tables: TableNames) -> None:
        self._address, self._tables = address, tables
        self._idle: list[Connection[Any]] = []
        self._lock, self._closed = Lock(), False

    @contextmanager
    def transaction(self) -> Iterator[Connection[Any]]:
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

    def translated(self, exc: BaseException) -> StoreError:
        """What the server said, in our words."""
        return translated(exc, self._address.shown, self._tables)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def _begun(self) -> Connection[Any]:
        if self._closed:
            raise closed(self._address)
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
            raise self.translated(exc) from exc
        except RuntimeError as exc:  # a way to log in that the driver knows only with another package
            raise StoreError(f"The driver cannot log in to {self._address.shown}: {exc}.") from exc

    def _take(self) -> Connection[Any] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _open(self, driver: Any) -> Connection[Any]:
        connection: Connection[Any] = driver.connect(
            **self._address.parameters, charset="utf8mb4", autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS
        )
        try:
            _keep_alive(connection)
            version_of(_greeting(connection), self._address.shown)
            with connection.cursor() as cursor:
                cursor.execute(ISOLATION)
        except BaseException:
            _close(connection)
            raise
        return connection

    def _commit(self, connection: Connection[Any]) -> None:
        try:
            # As for async handlers: only a new answer of the server says whether there is something to commit.
            connection.ping(reconnect=False)
            if not is_open(connection):
                raise ended()
            connection.commit()
        except _driver().MySQLError as exc:
            _close(connection)
            raise self.translated(exc) from exc
        except BaseException:
            _close(connection)  # nobody knows; it must not be used again
            raise

    def _give_back(self, connection: Connection[Any]) -> None:
        if self._closed or not connection.open:
            _close(connection)
            return
        with self._lock:
            self._idle.append(connection)


def _begun(connection: Connection[Any]) -> Connection[Any]:
    """The connection in a transaction; closed when that fails."""
    try:
        connection.begin()
    except BaseException:
        _close(connection)
        raise
    return connection


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


def _greeting(connection: Any) -> str:
    """What the server said as it greeted us."""
    greeting: str = connection.get_server_info()
    return greeting


def _close(connection: Connection[Any]) -> None:
    with suppress(Exception):  # closed already, by the driver or the server
        connection.close()


def _keep_alive(connection: Any) -> None:
    """Have the system notice when the other end is gone; the driver shows its socket in no other way."""
    end = connection._sock  # noqa: SLF001 - see above
    if end.family != socket.AF_UNIX:
        for name, value in KEEPALIVE.items():
            if option := getattr(socket, name, None):  # not every system has them all
                end.setsockopt(socket.IPPROTO_TCP, option, value)
