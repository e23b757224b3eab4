"""Django's `connection` and `connections["…"]`, on SQLite, PostgreSQL, MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.errors import NotInTransaction, UnknownHandle
from postroom.message import Message
from postroom.stores._put import Dialect, put_statements
from postroom.stores.handles._errors import translated
from postroom.tables import TableNames

DIALECTS: dict[str, Dialect] = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql"}


@dataclass(slots=True)
class DjangoHandle:
    """A database connection of Django: of this thread, as ever with Django."""

    connection: Any

    def check(self) -> None:
        """Raise NotInTransaction unless inside atomic(), or with Django's autocommit off."""
        if not self.connection.in_atomic_block and self.connection.get_autocommit():
            using = "" if self.connection.alias == "default" else f"using={self.connection.alias!r}"
            raise NotInTransaction(
                "The Django connection is not in a transaction, so the message would not commit with your data: "
                f"put inside `with transaction.atomic({using}):`."
            )

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages."""
        # Django reads %s on every database.
        statements = put_statements(DIALECTS[self.connection.vendor], "format", tables, messages)
        with translated(messages, tables), self.connection.cursor() as cursor:
            for statement in statements:
                cursor.executemany(statement.sql, statement.rows)


def django(connection: Any) -> DjangoHandle:
    """The handle for a connection of Django, or UnknownHandle for a database that Postroom does not write to."""
    # Django's proxy for the default cache is of the same class as the one for the default database.
    vendor = getattr(connection, "vendor", None)
    if vendor is None:
        raise UnknownHandle(f"{connection!r} is Django's, but no database: give django.db.connection.")
    if vendor not in DIALECTS:
        raise UnknownHandle(
            f"Django is connected to {vendor} here; Postroom writes to {', '.join(DIALECTS)}.", dialect=vendor
        )
    return DjangoHandle(connection)
