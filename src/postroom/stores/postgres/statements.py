"""The statements of this store by name, and what each part of the store is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from psycopg import AsyncCursor

from postroom.config.tables import TableNames
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.watch import channel
from postroom.stores.sql.files import render, statements

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
APart = TypeVar("APart", bound="OnConnections")


class Statements:
    """Runs a statement by its name."""

    def __init__(self, tables: TableNames, files: Sequence[str] = FILES) -> None:
        self._channel = channel(tables)
        self.texts = {
            name: render(sql, "pyformat", tables)[0]
            for file in files
            for name, sql in statements("postroom.stores.postgres", file).items()
        }

    async def wake(self, connection: Connection) -> None:
        """Tell every relay that watches, once this transaction commits. Never in a producer's transaction."""
        await connection.execute("SELECT pg_notify(%s, '')", [self._channel])

    async def run(self, connection: Connection, name: str, /, **parameters: Any) -> AsyncCursor[tuple[Any, ...]]:
        """Run one statement with named parameters; results come in binary."""
        cursor = connection.cursor(binary=True)
        await cursor.execute(self.texts[name], parameters)
        return cursor

    async def rows(self, connection: Connection, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement and fetch what it returns."""
        return await (await self.run(connection, name, **parameters)).fetchall()


class Running(Protocol):
    """Runs work on a connection, in a transaction. `Connections` does, and so does who lends one connection."""

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result: ...
    async def ask(self, work: Callable[[Connection], Awaitable[Result]]) -> Result: ...


class OnConnections(Protocol):
    """What has methods that run on connections."""

    @property
    def connections(self) -> Running: ...


class Part:
    """A part of the store. The parts of one store share its connections."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self.connections = connections
        self._run, self._rows, self._wake = statements.run, statements.rows, statements.wake


def in_transaction(
    method: Callable[Concatenate[APart, Connection, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Make a part's method run in one transaction of its own. The method takes the connection first; its caller gives none."""

    @wraps(method)
    async def run(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.run(lambda connection: method(part, connection, *args, **kwargs))

    return run


def single_statement(
    method: Callable[Concatenate[APart, Connection, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Like `in_transaction`, for a method that runs one statement: that is a transaction by itself, in one round trip."""

    @wraps(method)
    async def ask(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.ask(lambda connection: method(part, connection, *args, **kwargs))

    return ask
