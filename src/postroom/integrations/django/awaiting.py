"""Django's connection, as the stores' code for async drivers takes one. Nothing here ever waits for a loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")


def at_once(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that only awaits what is below: it never has to wait, so no event loop is needed."""
    try:
        coroutine.send(None)
    except StopIteration as exc:
        result: Result = exc.value
        return result
    coroutine.close()
    raise AssertionError("it waited for something")


@dataclass(slots=True)
class Awaitable:
    """A connection of Django: with psycopg's `execute` and asyncmy's `cursor`, as far as the making of tables needs them."""

    connection: Any

    @classmethod
    def of(cls, connection: Any) -> Any:
        """For a function that says it wants the driver's own."""
        return cls(connection)

    @property
    def info(self) -> Any:
        """What psycopg, 3 or 2, says of the connection."""
        return self.connection.connection.info

    def cursor(self) -> AwaitableCursor:
        return AwaitableCursor(self.connection)

    async def execute(self, query: Any, parameters: Sequence[Any] | None = None, **_: bool) -> AwaitableCursor:
        cursor = self.cursor()
        # As in psycopg; what may be prepared is left to Django.
        await cursor.execute(_text(query), parameters)
        return cursor


class Lent:
    """Lends Django's connection to a part of a store: what the part does is in the transaction that is open there."""

    def __init__(self, connection: Any) -> None:
        self._connection = Awaitable.of(connection)

    async def run(self, work: Callable[[Any], Any]) -> Any:
        return await work(self._connection)

    ask = run


class AwaitableCursor:
    """What was found is fetched at once: the cursor of Django's is closed again."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    async def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            self._rows = list(cursor.fetchall()) if cursor.description else []

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None


def _text(query: Any) -> str:
    """What psycopg takes for a query: a text, bytes, or a thing of its own."""
    match query:
        case str():
            return query
        case bytes():
            return query.decode()
    composed: str = query.as_string(None)
    return composed
