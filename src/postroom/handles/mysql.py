"""Connections of MariaDB's and MySQL's drivers: PyMySQL, mysqlclient (MySQLdb) and asyncmy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.handles.errors import translated
from postroom.handles.handle import are_several, whole, whole_async
from postroom.message import Message
from postroom.stores.sql.insert import put_in_mysql

IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS: with every answer the server says whether a transaction is open."""
NO_SUCH_VARIABLE, NO_SUCH_SAVEPOINT = 1193, 1305


@dataclass(slots=True)
class PyMySQLHandle:
    """A connection of PyMySQL. What counts is what the server said last: a BEGIN, or the first statement without
    autocommit."""

    connection: Any

    def check(self) -> None:
        """Raise NotInTransaction unless the server says that a transaction is open."""
        if not self.connection.server_status & IN_TRANSACTION:
            raise _not_in_transaction("PyMySQL", "run connection.begin() first")

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, many in a round trip."""
        write(self.connection, messages, tables)


@dataclass(slots=True)
class MySQLdbHandle:
    """A connection of mysqlclient, which does not pass on what the server says: it is asked."""

    connection: Any

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction is open; on MySQL, which cannot be asked, unless autocommit is off."""
        if not self._is_in_transaction():
            raise _not_in_transaction("mysqlclient", "run connection.begin() first")

    def _is_in_transaction(self) -> bool:
        with self.connection.cursor() as cursor:
            try:
                cursor.execute("SELECT @@in_transaction")
            except Exception as exc:
                if not exc.args or exc.args[0] != NO_SUCH_VARIABLE:
                    raise
                return not self.connection.get_autocommit() or _has_savepoint(cursor)
            return bool(cursor.fetchone()[0])

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, many in a round trip."""
        write(self.connection, messages, tables)


@dataclass(slots=True)
class AsyncmyHandle:
    """A connection of asyncmy."""

    connection: Any

    def check(self) -> None:
        """Raise NotInTransaction unless the server says that a transaction is open."""
        if not self.connection.server_status & IN_TRANSACTION:
            raise _not_in_transaction("asyncmy", "run await connection.begin() first")

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages, many in a round trip."""
        self.check()
        cursor = self.connection.cursor()
        several, statements = are_several(put_in_mysql(tables, messages))
        with translated(messages, tables):
            async with whole_async(cursor.execute, several=several):
                for sql, parameters in statements:
                    await cursor.execute(sql, parameters)


def write(connection: Any, messages: Sequence[Message], tables: TableNames) -> None:
    """Write the messages by a plain cursor of the connection."""
    several, statements = are_several(put_in_mysql(tables, messages))
    with translated(messages, tables), connection.cursor() as cursor, whole(cursor.execute, several=several):
        for sql, parameters in statements:
            cursor.execute(sql, parameters)


def _has_savepoint(cursor: Any) -> bool:
    """Can a savepoint be made that is still there after it? Outside a transaction it goes with its own statement."""
    cursor.execute("SAVEPOINT postroom_is_anybody_here")
    try:
        cursor.execute("RELEASE SAVEPOINT postroom_is_anybody_here")
    except Exception as exc:
        if exc.args and exc.args[0] == NO_SUCH_SAVEPOINT:
            return False
        raise
    return True


def _not_in_transaction(driver: str, remedy: str) -> NotInTransaction:
    return NotInTransaction(
        f"The {driver} connection is not in a transaction, so the message would not commit with your data: {remedy}."
    )
