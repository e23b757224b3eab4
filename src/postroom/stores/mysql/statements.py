"""The statements of this store by name, how values are given to them, and what each part of the store is made of."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from postroom.config.tables import TableNames
from postroom.stores.mysql.connections import Connection, Connections, Piece
from postroom.stores.sql.files import backquoted, render, statements

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)
EVERYTHING = 2**63 - 1
"""The LIMIT for none."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
APart = TypeVar("APart", bound="OnConnections")


class Statements:
    """Runs a statement by its name, on the user's table names."""

    def __init__(self, tables: TableNames, files: Sequence[str] = FILES) -> None:
        self.texts = {
            name: backquoted(render(sql, "pyformat", tables)[0])
            for file in files
            for name, sql in statements("postroom.stores.mysql", file).items()
        }

    async def run(self, connection: Connection, name: str, /, **parameters: Any) -> Any:
        """Run one statement with named parameters; the cursor."""
        cursor = connection.cursor()
        # Quoted by the driver one by one, by our own names: a dict from outside never comes here.
        await cursor.execute(self.texts[name], parameters)
        return cursor

    async def rows(self, connection: Connection, name: str, /, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        """Run one statement and fetch what it returns."""
        found: Sequence[tuple[Any, ...]] = await (await self.run(connection, name, **parameters)).fetchall()
        return found

    async def run_many(self, connection: Connection, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert these rows, by a statement that ends in VALUES (…): the driver makes one of them all."""
        await connection.cursor().executemany(self.texts[name], rows)

    def each(self, name: str, rows: Iterable[Mapping[str, int]]) -> Piece:
        """One SELECT after the other, a row of numbers for each: what a lateral join would be, where there is none."""
        return Piece(" UNION ALL ".join(f"({self.texts[name] % row})" for row in rows))


# ── how values are given to them ───────────────────────────────────────────────────────────────────────────────────────


def many(values: Iterable[Any]) -> tuple[Any, ...]:
    """A list as one parameter: `IN :values`. An empty one holds a NULL, which is equal to nothing."""
    return tuple(values) or (None,)


def listed(values: Iterable[Any]) -> str:
    """A list as a table to join from: `JSON_TABLE(:listed, …)`."""
    return json.dumps(list(values))


def pairs(lanes: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Lanes and their epochs as one parameter: `(lane, epoch) IN :pairs`. An empty one holds what no lane has."""
    return tuple(lanes.items()) or ((-1, -1),)


def text_of(moment: datetime | None) -> str | None:
    """A moment as the server reads it, in UTC."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


# ── what each part of the store is made of ─────────────────────────────────────────────────────────────────────────────


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
        self._run, self._rows = statements.run, statements.rows


def in_transaction(
    method: Callable[Concatenate[APart, Connection, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Make a part's method run in one transaction of its own. The method takes the connection first; its caller gives none.

    A transaction that lost to another one is run again as a whole, so the method may be called several times."""

    @wraps(method)
    async def run(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.run(lambda connection: method(part, connection, *args, **kwargs))

    return run


def single_statement(
    method: Callable[Concatenate[APart, Connection, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Like `in_transaction`, for a method that runs one statement that reads: that is a transaction by itself, in one round
    trip. One that writes must not be here: it is asked again where the connection broke."""

    @wraps(method)
    async def ask(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.ask(lambda connection: method(part, connection, *args, **kwargs))

    return ask
