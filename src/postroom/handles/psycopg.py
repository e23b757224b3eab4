"""psycopg's `Connection` and `AsyncConnection`, and psycopg2's `connection`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.errors import translated
from postroom.message import Message
from postroom.stores.sql.insert import put_statement

if TYPE_CHECKING:
    import psycopg
    from psycopg2.extensions import connection

IDLE, ACTIVE, INERROR = 0, 1, 3
"""libpq's PGTransactionStatusType, the same in every driver on it."""


@dataclass(slots=True)
class PsycopgHandle:
    """A connection of psycopg. `with connection.transaction()` counts, and so does a BEGIN of the driver's own."""

    connection: psycopg.Connection[Any]

    def check(self) -> None:
        """Raise NotInTransaction when the connection is idle, or its transaction has failed."""
        check_connection(self.connection, "put inside `with connection.transaction():`")

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a thousand in a round trip."""
        statement = put_statement("postgres", "format", tables, messages)
        # A plain cursor: the connection's own factory may make one that reads another style of parameters.
        cursor = _psycopg().Cursor(self.connection)
        with translated(messages, tables):
            for row in statement.rows:
                cursor.execute(statement.sql, row)


@dataclass(slots=True)
class AsyncPsycopgHandle:
    """An async connection of psycopg."""

    connection: psycopg.AsyncConnection[Any]

    def check(self) -> None:
        """Raise NotInTransaction when the connection is idle, or its transaction has failed."""
        check_connection(self.connection, "put inside `async with connection.transaction():`")

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a thousand in a round trip."""
        self.check()
        statement = put_statement("postgres", "format", tables, messages)
        cursor = _psycopg().AsyncCursor(self.connection)
        with translated(messages, tables):
            for row in statement.rows:
                await cursor.execute(statement.sql, row)


@dataclass(slots=True)
class Psycopg2Handle:
    """A connection of psycopg2, which begins by itself before the user's first statement."""

    connection: connection

    def check(self) -> None:
        """Raise NotInTransaction when the connection is idle, or its transaction has failed."""
        remedy = "with connection.autocommit = False write your data first, which begins one, then put"
        check_status(self.connection.get_transaction_status(), "psycopg2", remedy)

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, a thousand in a round trip."""
        statement = put_statement("postgres", "format", tables, messages)
        with translated(messages, tables), self.connection.cursor() as cursor:
            for row in statement.rows:
                cursor.execute(statement.sql, row)


@cache
def _psycopg() -> Any:
    import psycopg

    return psycopg


def check_connection(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], remedy: str) -> None:
    """Raise NotInTransaction unless a transaction is open, as far as the driver can know."""
    status = connection.pgconn.transaction_status
    check_status(status, "psycopg", remedy)
    if (
        status == ACTIVE
        and connection.autocommit
        and connection.pgconn.pipeline_status
        and not _is_in_block(connection)
    ):
        # What is under way in a pipeline may be anything; without autocommit, the driver has sent a BEGIN before it.
        raise NotInTransaction(
            "The psycopg connection is in a pipeline with autocommit, and not known to be in a transaction, so the "
            f"message might not commit with your data: {remedy}."
        )


def _is_in_block(connection: Any) -> bool:
    """Inside `with connection.transaction():`, which alone is known before the server has answered."""
    return getattr(connection, "_num_transactions", 0) > 0


def check_status(status: int, driver: str, remedy: str) -> None:
    """Raise NotInTransaction when there is no transaction or a failed one. Of a closed connection the driver speaks."""
    if status == IDLE:
        raise NotInTransaction(
            f"The {driver} connection is not in a transaction, so the message would not commit with your data: "
            f"{remedy}."
        )
    if status == INERROR:
        raise NotInTransaction(
            f"The transaction of the {driver} connection has failed, so nothing more can be written in it: roll it "
            "back, or to a savepoint from before the error, and put again."
        )
