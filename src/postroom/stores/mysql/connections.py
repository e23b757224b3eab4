"""Connections: few, opened when needed, given back after each transaction.

READ COMMITTED: a claim then locks rows and no gaps between them, so it never stands in a producer's way. A transaction
that lost to another one (a deadlock, a lock that was not to be had) is rolled back whole and run again.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import asyncmy
from asyncmy import converters, errors
from asyncmy.constants import FIELD_TYPE

from postroom.config.tables import TableNames
from postroom.errors import StoreError
from postroom.stores.connections import OURS
from postroom.stores.mysql.errors import BUSY, code_of, is_lost, is_not_now, translated
from postroom.stores.mysql.url import MySQLUrl
from postroom.stores.sql.mysql_server import version_of
from postroom.stores.sql.times import EARLIEST

Connection: TypeAlias = asyncmy.Connection
Link = TypeVar("Link", bound=asyncmy.Connection)
Result = TypeVar("Result")

AT_ONCE = 8
"""How many transactions of one store run at once; more wait their turn."""
TRIES = 6
"""How often a transaction is run that loses to others each time."""
PAUSE_SECONDS = 0.02
CONNECT_TIMEOUT_SECONDS = 10
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A server that vanished without a word (its machine, or the network) is noticed within half a minute, not in hours."""
SESSION = {
    "time_zone": "'+00:00'",
    "sql_mode": "'TRADITIONAL'",
    "innodb_lock_wait_timeout": "5",
    "lock_wait_timeout": "10",
}
FREEZE = {"mariadb": {"idle_transaction_timeout": "5"}, "mysql": {"wait_timeout": "10"}}
"""A relay that freezes in a transaction loses its locks when the server ends it. MySQL knows no more than a limit for every
idle connection: those are opened again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of SQL of our own, which stands in for a parameter."""

    sql: str


def moment_of(text: str | bytes) -> datetime:
    """A DATETIME of ours, which is in UTC. What no datetime can hold, such as a month 0, becomes the earliest there is.

    >>> moment_of("2026-11-15 00:00:00.250000").isoformat()
    '2026-11-15T00:00:00.250000+00:00'
    """
    try:
        return datetime.fromisoformat(text if isinstance(text, str) else text.decode()).replace(tzinfo=UTC)
    except ValueError:
        return EARLIEST


CONVERTERS = {
    **converters.conversions,
    FIELD_TYPE.DATETIME: moment_of,
    Piece: lambda piece, _=None: piece.sql,
}


class Connections:
    """A small pool that says why it cannot connect."""

    def __init__(self, url: str, tables: TableNames, name: str = OURS) -> None:
        self._name = name
        self.address = MySQLUrl.of(url)
        self.shown = self.address.shown
        self.tables = tables
        self._idle: list[Connection] = []
        self._closed = False
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run *work* in one transaction: committed when it returns, rolled back when it raises."""
        for tries_left in reversed(range(TRIES)):
            try:
                async with self._transaction() as connection:
                    return await work(connection)
            except (errors.MySQLError, OSError) as exc:
                if code_of(exc) not in BUSY or not tries_left:
                    raise self.translated(exc) from exc
                await asyncio.sleep(PAUSE_SECONDS * (TRIES - tries_left) * random.random())  # noqa: S311 - no secret
        raise AssertionError  # the last try returns or raises

    async def ask(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run *work*, which is one statement that reads: it is a transaction by itself."""
        try:
            async with self._connection(begin=False) as connection:
                try:
                    return await work(connection)
                except errors.MySQLError as exc:
                    # The server may have ended it while it was idle. Nothing was written, so a new one can be asked.
                    if not is_lost(exc):
                        raise
                    connection.close()
            async with self._connection(begin=False, fresh=True) as connection:
                return await work(connection)
        except (errors.MySQLError, OSError) as exc:
            raise self.translated(exc) from exc

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a transaction, which cannot be run again. It may be idle in it for as long as the caller
        likes, so it is one of its own."""
        try:
            async with self._transaction(patient=True) as connection:
                yield connection
        except errors.MySQLError as exc:
            raise self.translated(exc) from exc

    @asynccontextmanager
    async def _transaction(self, *, patient: bool = False) -> AsyncIterator[Connection]:
        async with self._connection(begin=True, patient=patient) as connection:
            try:
                yield connection
            except BaseException as exc:
                await roll_back(connection)
                if is_not_now(exc):
                    connection.close()
                    await self._forget()
                raise
            try:
                await connection.commit()
            except BaseException as exc:
                connection.close()  # nobody knows; it must not be used again
                if is_not_now(exc):
                    await self._forget()
                raise

    @asynccontextmanager
    async def _connection(
        self, *, begin: bool, fresh: bool = False, patient: bool = False
    ) -> AsyncIterator[Connection]:
        async with self._turn:
            connection = await self._take(begin=begin, fresh=fresh or patient, patient=patient)
            try:
                yield connection
            finally:
                if patient:
                    await connection.ensure_closed()
                else:
                    await self._give_back(connection)

    async def _take(self, *, begin: bool, fresh: bool, patient: bool) -> Connection:
        if self._closed:
            raise StoreError(f"The store at {self.shown} is closed: open it again.")
        while self._idle and not fresh:
            connection = self._idle.pop()
            try:
                return await begun(connection, begin)
            except errors.MySQLError as exc:
                # The server ended it while it was idle. Nothing was begun, so a new one will do.
                if not is_lost(exc):
                    raise
        return await begun(await self._open(patient=patient), begin)

    async def _open(self, *, patient: bool) -> Connection:
        try:
            connection = await self._connected()
        except RuntimeError as exc:  # a way to log in that the driver knows only with another package
            raise StoreError(f"The driver cannot log in to {self.shown}: {exc}.") from exc
        try:
            keep_alive(link(connection).get_extra_info("socket"))
            server = version_of(connection.get_server_info(), self.shown)
            settings = SESSION if patient else SESSION | FREEZE[server.family]
            cursor = connection.cursor()
            await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            await cursor.execute("SET " + ", ".join(f"SESSION {name} = {value}" for name, value in settings.items()))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connected(self) -> Connection:
        connection: Connection = await asyncmy.connect(
            **self.address.parameters,
            charset="utf8mb4",
            autocommit=True,
            binary_prefix=True,
            conv=CONVERTERS,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            program_name=self._name,
        )
        return connection

    async def _give_back(self, connection: Connection) -> None:
        if self._closed:
            await connection.ensure_closed()
        elif link(connection) is not None:
            self._idle.append(connection)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        await self._forget()

    async def _forget(self) -> None:
        """Close what is idle: the next one looks for the primary again."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.ensure_closed()

    def translated(self, exc: BaseException) -> StoreError:
        """What the server said, in our words."""
        return translated(exc, self.shown, self.tables)


async def begun(connection: Link, begin: bool) -> Link:
    """The connection, in a transaction if it is to be; closed when that fails."""
    try:
        if begin:
            await connection.begin()
    except BaseException:
        connection.close()
        raise
    return connection


async def roll_back(connection: Connection) -> None:
    """Also after an error that rolled back a statement alone: half a transaction must never be committed.

    Of a connection that is gone the server does so itself, and what broke it is what the caller should hear of."""
    try:
        await connection.rollback()
    except errors.MySQLError:
        connection.close()
    except BaseException:
        connection.close()
        raise


def link(connection: Any) -> Any:
    """What carries the connection, None once it was closed; the driver shows it in no other way."""
    return connection._transport if connection.connected else None  # noqa: SLF001 - see above


def keep_alive(end: socket.socket) -> None:
    """Have the system notice when the other end is gone."""
    if end.family != socket.AF_UNIX:
        for name, value in KEEPALIVE.items():
            if option := getattr(socket, name, None):  # not every system has them all
                end.setsockopt(socket.IPPROTO_TCP, option, value)
