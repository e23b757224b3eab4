"""Connections: few, opened when needed, given back after each transaction.

No session settings and no session state: a transaction pooler (PgBouncer) may put each transaction on another server
connection. Prepared statements are the one exception, where nobody stands between: on a connection that is lent, the name of
one may be another's, and not even be noticed. A pooler makes up the number of the process that a client is told at first, so
that number is compared with the server's own before anything is prepared.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, StoreError, StoreUnavailable
from postroom.stores.connections import OURS
from postroom.stores.postgres.buffered_connection import BufferedConnection
from postroom.stores.postgres.errors import Blamed, is_not_now, translated
from postroom.urls import redact

Result = TypeVar("Result")
Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]

AT_ONCE = 8
"""How many transactions of one store run at once, and as many of handlers beside them; more wait their turn."""
CONNECT_TIMEOUT_SECONDS = 10
KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A server that vanished without a word (its machine, or the network) is noticed within half a minute, not in hours."""
HOW: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    # A role or a database may have another one set, in which not every text can be said.
    "client_encoding": "utf8",
    **KEEPALIVE,
}
"""How every connection of ours is made, whatever the URL, the role or the database says."""
PREPARE_AFTER = 3
VERSION_MIN = 140_000
NOT_PREPARED_HERE = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement, errors.ProtocolViolation)
"""What is met behind a pooler that was not recognised, if anything is: a statement that is not there, or is another's."""
WHO = "SELECT pg_backend_pid()"


class Connections:
    """A small pool that says why it cannot connect."""

    def __init__(self, url: str, tables: TableNames, name: str = OURS) -> None:
        self._name = name
        self.url, self.shown = _checked(url), redact(url)
        self.tables = tables
        self._idle: list[Connection] = []
        self._closed = False
        self._turn = asyncio.Semaphore(AT_ONCE)
        # Handlers may take long. A relay on the same store must not wait for them.
        self._handlers_turn = asyncio.Semaphore(AT_ONCE)
        self.prepare_after: int | None = PREPARE_AFTER

    async def run(self, work: Callable[[Connection], Awaitable[Result]], *, whole: bool = True) -> Result:
        """Run *work* in one transaction: committed when it returns, rolled back when it raises."""
        try:
            return await self._run(work, whole=whole)
        except NOT_PREPARED_HERE:
            self.prepare_after = None
            await self._forget()
            try:
                return await self._run(work, whole=whole)
            except psycopg.Error as exc:
                raise self.translated(exc) from exc
        except psycopg.Error as exc:
            raise self.translated(exc) from exc

    async def ask(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run *work*, which is one statement: it is a transaction by itself, without the round trips for its ends."""
        return await self.run(work, whole=False)

    async def _run(self, work: Callable[[Connection], Awaitable[Result]], *, whole: bool) -> Result:
        async with self._transaction(whole=whole) as connection:
            return await work(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a transaction. It cannot be run again, so nothing is prepared in it."""
        try:
            async with self._transaction(prepare=False) as connection:
                yield connection
        except psycopg.Error as exc:
            raise self.translated(exc) from exc

    @asynccontextmanager
    async def handling(self) -> AsyncIterator[Connection]:
        """A connection inside a transaction for a handler, whose errors come out as they are. Where a pooler does not carry
        prepared statements over, the first one fails as if the database was away: whoever handles begins again."""
        connection: Connection | None = None
        try:
            async with self._transaction(self._handlers_turn) as connection:
                yield connection
        except NOT_PREPARED_HERE as exc:
            self.forget_prepared()
            await self._forget()
            raise self.pooled() from exc
        except psycopg.Error as exc:
            if connection is None or connection.closed:
                raise self.translated(exc) from exc
            raise

    def note_who(self, connection: psycopg.BaseConnection[Any], answer: tuple[Any, ...] | None) -> None:
        """Prepare nothing, if it is another process that answers than the one we were told of."""
        if answer is None or answer[0] != connection.info.backend_pid:
            self.forget_prepared()

    def forget_prepared(self) -> None:
        """Prepare nothing from now on."""
        self.prepare_after = None

    def pooled(self) -> StoreUnavailable:
        """What to say to whoever met a prepared statement of another."""
        return StoreUnavailable(
            f"PostgreSQL at {self.shown} is behind a pooler: statements are not prepared from now on."
        )

    @asynccontextmanager
    async def _transaction(
        self, turn: asyncio.Semaphore | None = None, *, prepare: bool = True, whole: bool = True
    ) -> AsyncIterator[Connection]:
        async with turn or self._turn:
            connection = await self._take()
            connection.prepare_threshold = self.prepare_after if prepare else None
            blamed = Blamed(connection)
            try:
                async with connection.transaction() if whole else nullcontext():
                    with blamed:
                        yield connection
            except BaseException as exc:
                if is_not_now(exc) and blamed.is_ours:
                    # The next one looks for the primary again. This one, and those beside it, may never be let write again.
                    await connection.close()
                    await self._forget()
                await self._give_back(connection)
                raise
            await self._give_back(connection)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        await self._forget()

    async def _take(self) -> Connection:
        if self._closed:
            raise StoreError(f"The store at {self.shown} is closed: open it again.")
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _has_said_farewell(connection):
                return connection
            await connection.close()
        connection = await BufferedConnection.connect(
            self.url, prepare_threshold=self.prepare_after, fallback_application_name=self._name, **HOW
        )
        version = connection.info.server_version
        if version < VERSION_MIN:
            await connection.close()
            raise StoreError(
                f"PostgreSQL at {self.shown} is version {version // 10_000}; "
                f"Postroom needs {VERSION_MIN // 10_000} or later."
            )
        if self.prepare_after is not None:
            self.note_who(connection, await (await connection.execute(WHO, prepare=False)).fetchone())
        return connection

    async def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.closed:
            await connection.close()
        else:
            self._idle.append(connection)

    async def _forget(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def translated(self, exc: psycopg.Error) -> StoreError:
        """What PostgreSQL said, by its code."""
        return translated(exc, self.shown, self.tables)


def _has_said_farewell(connection: Connection) -> bool:
    """Is there something to read though nothing was asked? Then the server ended it, and a new one is needed."""
    socket = select.poll()
    socket.register(connection.pgconn.socket, select.POLLIN)
    return bool(socket.poll(0))


def _checked(url: str) -> str:
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # What the driver says of it quotes the password.
        raise ConfigError(
            f"{redact(url)} is not a PostgreSQL URL: write postgresql://user:password@host:5432/database, "
            "with %40 for an @ and %25 for a % in the password.",
            url=redact(url),
        ) from None
    return url
