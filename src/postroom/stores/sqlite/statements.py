"""The statements of this store by name, and what each part of the store is made of."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from postroom.config.tables import TableNames
from postroom.stores.sql.files import render, statements
from postroom.stores.sqlite.connections import Writer

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)
NO_LIMIT = -1
"""What SQLite's LIMIT takes for none."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
APart = TypeVar("APart", bound="Part")


class Statements:
    """Runs a statement by its name."""

    def __init__(self, tables: TableNames, files: Sequence[str] = FILES) -> None:
        self.texts = {
            name: render(sql, "named", tables)[0]
            for file in files
            for name, sql in statements("postroom.stores.sqlite", file).items()
        }

    def run(self, connection: sqlite3.Connection, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        """Run one statement with named parameters."""
        return connection.execute(self.texts[name], parameters)


class Part:
    """A part of the store. The parts of one store share its writer."""

    def __init__(self, writer: Writer, statements: Statements) -> None:
        self.writer = writer
        self._run = statements.run


def in_transaction(
    method: Callable[Concatenate[APart, sqlite3.Connection, Arguments], Result],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Make a part's plain method run in the writer's thread, in one transaction of its own, and make it awaitable. The
    method takes the connection first; its caller gives none."""

    @wraps(method)
    async def run(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.writer.run(lambda connection: method(part, connection, *args, **kwargs))

    return run


def reading(
    method: Callable[Concatenate[APart, sqlite3.Connection, Arguments], Result],
) -> Callable[Concatenate[APart, Arguments], Coroutine[Any, Any, Result]]:
    """Like `in_transaction`, for a method that only reads: it sees one snapshot and waits for no writer."""

    @wraps(method)
    async def read(part: APart, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await part.writer.read(lambda connection: method(part, connection, *args, **kwargs))

    return read


def many(values: Iterable[Any]) -> str:
    """A list as one parameter: `IN (SELECT value FROM json_each(:values))`."""
    return json.dumps(list(values))
