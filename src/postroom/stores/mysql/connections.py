"""Connections: few, opened when needed, given back after each transaction.

READ COMMITTED: a claim then locks rows and no gaps between them, so it never stands in a producer's way. A transaction
that lost to another one (a deadlock, a lock that was not to be had) is rolled back whole and run again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncmy
from asyncmy import converters, errors
from asyncmy.constants import FIELD_TYPE

from postroom.config.tables import TableNames
from postroom.errors import StoreError
from postroom.stores.connection_names import OURS
from postroom.stores.mysql.connection import Connection, begun, keep_alive, link, roll_back
from postroom.stores.mysql.errors import BUSY, code_of, is_lost, is_not_now, translated
from postroom.stores.mysql.parameters import Piece, moment_of
from postroom.stores.mysql.url import MySQLUrl
from postroom.stores.sql.mysql_server import Version, version_of

Result = TypeVar("Result")

AT_ONCE = 8
"""How many transactions of one store run at once; more wait their turn."""
TRIES = 6
"""How often a transaction is run that loses to others each time."""
PAUSE_SECONDS = 0.02
CONNECT_TIMEOUT_SECONDS = 10
SESSION = {
    "time_zone": "'+00:00'",
    "sql_mode": "'TRADITIONAL'",
    "innodb_lock_wait_timeout": "5",
    "lock_wait_timeout": "10",
}
FREEZE = {"mariadb": {"idle_transaction_timeout": "5"}, "mysql": {"wait_timeout": "10"}}
"""A relay that freezes in a transaction loses its locks when the server ends it. MySQL knows no more than a limit for every
idle connection: those are opened anew."""
CONVERTERS = {
    **converters.conversions,
    FIELD_TYPE.DATETIME: moment_of,
    Piece: lambda piece, _=None: piece.sql,
}


class Connections:
    """A small pool that says why it cannot connect."""

    def __init__(self, url: str, tables: TableNames, name: str = OURS) -> None:
        self._name = name
        self._address = MySQLUrl.of(url)
        self._tables = tables
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
                    raise self._translated(exc) from exc
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
            raise self._translated(exc) from exc

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a transaction, which cannot be run again. It may be idle in it for as long as the caller
        likes, so it is one of its own."""
        try:
            async with self._transaction(patient=True) as connection:
                yield connection
        except errors.MySQLError as exc:
            raise self._translated(exc) from exc

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
            raise StoreError(f"The store at {self._address.shown} is closed: open it anew.")
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
            raise StoreError(f"The driver cannot log in to {self._address.shown}: {exc}.") from exc
        try:
            keep_alive(connection)
            version = self.version_of(connection)
            settings = SESSION if patient else SESSION | FREEZE[version.family]
            cursor = connection.cursor()
            await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            await cursor.execute("SET " + ", ".join(f"SESSION {name} = {value}" for name, value in settings.items()))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connected(self) -> Connection:
        connection: Connection = await asyncmy.connect(
            **self._address.parameters,
            charset="utf8mb4",
            autocommit=True,
            binary_prefix=True,
            conv=CONVERTERS,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            program_name=self._name,
        )
        return connection

    def version_of(self, connection: Connection) -> Version:
        """What the server is; StoreError when it is too old for us."""
        return version_of(connection.get_server_info(), self._address.shown)

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
        """Close what is idle: the next one looks for the primary anew."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.ensure_closed()

    def _translated(self, exc: BaseException) -> StoreError:
        return translated(exc, self._address.shown, self._tables)
