"""Django's `connection` and `connections["…"]`, on SQLite, PostgreSQL, MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction, UnknownHandle
from postroom.handles import nearby
from postroom.handles.errors import translated
from postroom.handles.handle import whole
from postroom.message import Message
from postroom.stores.sql.insert import Dialect, Statement, put_statements

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
        if self.connection.vendor == "sqlite" and any(self.connection.savepoint_ids):
            self._check_savepoint()

    def _check_savepoint(self) -> None:
        """Inside `atomic` Django has run BEGIN itself. With autocommit off by hand it leaves that to sqlite3, which runs none
        before a SAVEPOINT."""
        if self.connection.connection.isolation_level is not None:
            raise NotInTransaction(
                "The Django connection is in a SAVEPOINT with autocommit off, and on SQLite the end of that savepoint would "
                "commit the message, even if your transaction is rolled back: run set_autocommit(True) and put inside "
                "`with transaction.atomic():`, or put before the savepoint."
            )

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages."""
        # Django reads %s on every database.
        statements = put_statements(DIALECTS[self.connection.vendor], "format", tables, messages)
        several = self._writes_several(messages, statements)
        with translated(messages, tables), self.connection.cursor() as cursor:
            if several and self.connection.vendor == "sqlite" and not self.connection.connection.in_transaction:
                cursor.execute("BEGIN")  # as sqlite3 would before the first row, but not before the savepoint
            with whole(cursor.execute, several=several):
                for statement in statements:
                    cursor.executemany(statement.sql, statement.rows)
        if nearby.is_anyone() and self.connection.in_atomic_block:
            self.connection.on_commit(nearby.tell)

    def _writes_several(self, messages: Sequence[Message], statements: Sequence[Statement]) -> bool:
        """Whether some of it may be written when an error comes. On PostgreSQL an error fails the transaction."""
        match self.connection.vendor:
            case "sqlite":
                return len(messages) > 1
            case "mysql":
                return len(statements) > 1
        return False


def django(connection: Any) -> DjangoHandle:
    """The handle for a connection of Django, or UnknownHandle for a database that Postroom does not write to."""
    # Django's proxy for the default cache is of the same class as the one for the default database.
    vendor = getattr(connection, "vendor", None)
    if vendor is None:
        raise UnknownHandle(f"{connection!r} is Django's, but not a database: give django.db.connection.")
    if vendor not in DIALECTS:
        raise UnknownHandle(
            f"Django is connected to {vendor} here; Postroom writes to {', '.join(DIALECTS)}.", dialect=vendor
        )
    return DjangoHandle(connection)
