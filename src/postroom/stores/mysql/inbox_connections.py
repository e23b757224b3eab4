"""Connections for async handlers, each in a transaction of its handler's.

They are the driver's own, as a service would open them, but for READ COMMITTED: what a handler reads is not converted in our
way, and it may be idle in its transaction for as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncmy
from asyncmy import errors

from postroom.config.tables import TableNames
from postroom.errors import StoreError
from postroom.handles.mysql import IN_TRANSACTION
from postroom.stores.mysql.connection import begun, keep_alive, link, roll_back
from postroom.stores.mysql.connections import AT_ONCE, CONNECT_TIMEOUT_SECONDS
from postroom.stores.mysql.errors import is_lost, translated
from postroom.stores.mysql.url import MySQLUrl
from postroom.stores.sql.mysql_server import version_of

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


class HandlingConnections:
    """A small pool. What went wrong once is not used again: a handler may have left anything behind."""

    def __init__(self, address: MySQLUrl, tables: TableNames) -> None:
        self._address, self._tables = address, tables
        self._idle: list[HandlerConnection] = []
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

    def translated(self, exc: BaseException) -> StoreError:
        """What the server said, in our words."""
        return translated(exc, self._address.shown, self._tables)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.ensure_closed()

    async def _begun(self) -> HandlerConnection:
        if self._closed:
            raise closed(self._address)
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
            raise self.translated(exc) from exc
        except RuntimeError as exc:  # a way to log in that the driver knows only with another package
            raise StoreError(f"The driver cannot log in to {self._address.shown}: {exc}.") from exc

    async def _open(self) -> HandlerConnection:
        make: type[Any] = HandlerConnection  # the driver's own has no types
        connection: HandlerConnection = make(
            **self._address.parameters, charset="utf8mb4", autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS
        )
        await connection.connect()
        try:
            keep_alive(connection)
            version_of(connection.get_server_info(), self._address.shown)
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
                raise ended()
            await connection.commit()
        except errors.MySQLError as exc:
            connection.close()
            raise self.translated(exc) from exc
        except BaseException:
            connection.close()  # nobody knows; it must not be used again
            raise

    async def _give_back(self, connection: HandlerConnection) -> None:
        if self._closed:
            await connection.ensure_closed()
        elif not is_gone(connection):
            self._idle.append(connection)


def is_open(connection: Any) -> bool:
    """Did the server say last that a transaction is open?"""
    return bool(connection.server_status & IN_TRANSACTION)


def is_gone(connection: Any) -> bool:
    """Is the connection closed, by whomever?"""
    end = link(connection)
    return end is None or end.is_closing()


def closed(address: MySQLUrl) -> StoreError:
    return StoreError(f"The store at {address.shown} is closed: open it anew.")


def ended() -> StoreError:
    """The transaction was over when it was to be committed."""
    return StoreError(
        "The transaction was over before its end: the handler ended it, or went on after a deadlock, which rolls back all "
        "of it; leave commit and rollback to the inbox, and let errors out."
    )
