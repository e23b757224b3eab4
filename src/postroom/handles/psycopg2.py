"""psycopg2's `connection`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.config.tables import TableNames
from postroom.handles.errors import translated
from postroom.handles.psycopg import check_status
from postroom.message import Message
from postroom.stores.sql.insert import put_statement

if TYPE_CHECKING:
    from psycopg2.extensions import connection


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
