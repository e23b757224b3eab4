"""What each part of a store is made of, where the database is a server: connections, statements by name, and methods that
run in a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Verdict

AConnection = TypeVar("AConnection")
Connection_co = TypeVar("Connection_co", covariant=True)
Connection_contra = TypeVar("Connection_contra", contravariant=True)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
APart = TypeVar("APart", bound="OnConnections")


class Running(Protocol[Connection_co]):
    """Runs work on a connection, in a transaction. The store's connections do, and so does who lends one connection."""

    async def run(self, work: Callable[[Connection_co], Awaitable[Result]]) -> Result: ...
    async def ask(self, work: Callable[[Connection_co], Awaitable[Result]]) -> Result: ...


class OnConnections(Protocol):
    """What has methods that run on connections."""

    @property
    def connections(self) -> Running[Any]: ...


class Connections(Running[Connection_co], Protocol[Connection_co]):
    """The connections of a store."""

    @property
    def tables(self) -> TableNames: ...

    def transaction(self) -> AbstractAsyncContextManager[Connection_co]:
        """Open a transaction, which cannot be run again, and yield its connection."""


class Statements(Protocol[Connection_contra]):
    """Runs a statement by its name."""

    async def run(self, connection: Connection_contra, name: str, /, **parameters: Any) -> Any:
        """Run one statement with named parameters; return the cursor."""

    async def rows(self, connection: Connection_contra, name: str, /, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        """Run one statement and fetch what it returns."""

    async def wake(self, connection: Connection_contra) -> None:
        """Tell every relay that watches, once this transaction commits, where the database can tell."""

    def many(self, values: Iterable[Any]) -> Any:
        """Return a list as one parameter."""

    def at(self, moment: datetime | None) -> Any:
        """Return a moment as a parameter."""


class Verdicts(Protocol[Connection_contra]):
    """Writes what became of messages, inside the transaction it is given."""

    async def record(
        self,
        connection: Connection_contra,
        verdicts: Mapping[int, Verdict],
        now: datetime | None,
        *,
        lost: bool = False,
    ) -> None:
        """Write the verdicts on rows that are still open."""

    async def look_after(self, connection: Connection_contra, keys: Collection[str]) -> None:
        """Hold the keys that must wait, until the right moment; let go of those that need not."""


class Part(Generic[AConnection]):
    """A part of the store. The parts of one store share its connections."""

    def __init__(self, connections: Connections[AConnection], statements: Statements[AConnection]) -> None:
        self.connections = connections
        self._run, self._rows, self._wake = statements.run, statements.rows, statements.wake
        self._many, self._at = statements.many, statements.at


def in_transaction(
    method: Callable[Concatenate[APart, AConnection, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Make a part's method run in one transaction of its own. The method takes the connection first; its caller gives none.

    Where a transaction that lost to another one is run again, it is run as a whole: the method may be called several times."""

    @wraps(method)
    async def run(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.run(lambda connection: method(part, connection, *args, **kwargs))

    return run


def single_statement(
    method: Callable[Concatenate[APart, AConnection, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Like `in_transaction`, for a method that runs one statement: that is a transaction by itself, in one round trip.

    On MariaDB and MySQL only for one that reads: it is asked again where the connection broke."""

    @wraps(method)
    async def ask(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.connections.ask(lambda connection: method(part, connection, *args, **kwargs))

    return ask
