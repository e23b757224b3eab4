"""SQLAlchemy's `Session` and `Connection`, scoped and async ones too, on any of its drivers for SQLite,
PostgreSQL, MariaDB and MySQL.

A session with several engines writes to its default one. Where that is not the database of the data, give the
connection instead: `outbox.put(session.connection(bind_arguments={"mapper": Order}), message)`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction, UnknownHandle
from postroom.handles.commits import Owed, news_of_connection, news_of_session, owed_by_connection, owed_by_session
from postroom.handles.errors import translated
from postroom.handles.handle import whole
from postroom.message import Message
from postroom.stores.sql.insert import Dialect, put_statements

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import Transaction
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from postroom.stores.sql.files import Style

DIALECTS: dict[str, Dialect] = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}


@dataclass(slots=True)
class ConnectionHandle:
    """A connection."""

    connection: Connection

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was begun, by hand or by an earlier statement."""
        if not self.connection.in_transaction():
            raise _not_in_transaction("Connection", "put inside `with connection.begin():`")

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages; but raise NotInTransaction where the driver commits each statement."""
        write(self.connection, messages, tables)
        news_of_connection(self.connection)


@dataclass(slots=True)
class SessionHandle:
    """A session: its connection, without a flush."""

    session: Session

    def check(self) -> None:
        """Raise NotInTransaction where no transaction was begun, and the session does not begin by itself either."""
        if not (self.session.in_transaction() or self.session.autobegin):
            raise _not_in_transaction("Session", "put inside `with session.begin():`")

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages; but raise NotInTransaction where the driver commits each statement."""
        _write_in_session(self.session, messages, tables)


@dataclass(slots=True)
class AsyncConnectionHandle:
    """An async connection: the sync one inside it."""

    connection: AsyncConnection

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was begun, by hand or by an earlier statement."""
        if self.connection.sync_connection is None or not self.connection.in_transaction():
            raise _not_in_transaction("AsyncConnection", "put inside `async with connection.begin():`")

    def write(self, messages: Sequence[Message], tables: TableNames) -> Coroutine[Any, Any, None]:
        """The same, when awaited; and until it is, the transaction refuses to commit."""
        connection: Any = self.connection.sync_connection
        return self._write(owed_by_connection(connection), messages, tables)

    async def _write(self, owed: Owed, messages: Sequence[Message], tables: TableNames) -> None:
        connection = self.connection.sync_connection
        owed.paid(connection.get_transaction() if connection is not None else None)
        await self.connection.run_sync(write, messages, tables)
        if connection is not None:
            news_of_connection(connection)


@dataclass(slots=True)
class AsyncSessionHandle:
    """An async session: the sync one inside it."""

    session: AsyncSession

    def check(self) -> None:
        """Raise NotInTransaction where no transaction was begun, and the session does not begin by itself either."""
        if not (self.session.in_transaction() or self.session.sync_session.autobegin):
            raise _not_in_transaction("AsyncSession", "put inside `async with session.begin():`")

    def write(self, messages: Sequence[Message], tables: TableNames) -> Coroutine[Any, Any, None]:
        """The same, when awaited; and until it is, the transaction refuses to commit."""
        return self._write(owed_by_session(self.session.sync_session), messages, tables)

    async def _write(self, owed: Owed, messages: Sequence[Message], tables: TableNames) -> None:
        owed.paid(self.session.sync_session.get_transaction())
        await self.session.run_sync(_write_in_session, messages, tables)


def scoped(registry: scoped_session[Any]) -> SessionHandle:
    """The session of the current scope."""
    return SessionHandle(registry())


def async_scoped(registry: async_scoped_session[Any]) -> AsyncSessionHandle:
    """The session of the current scope."""
    return AsyncSessionHandle(registry())


def _write_in_session(session: Session, messages: Sequence[Message], tables: TableNames) -> None:
    write(session.connection(), messages, tables)
    news_of_session(session)


def write(connection: Connection, messages: Sequence[Message], tables: TableNames) -> None:
    """Write the messages by the driver's own SQL, in the connection's transaction."""
    dialect, style = _language(connection)
    if commits_by_itself(connection):
        raise NotInTransaction(
            "The SQLAlchemy connection has isolation_level AUTOCOMMIT, so the message would not commit with your data: "
            "take an engine without it for this transaction."
        )
    if dialect == "sqlite":
        _check_savepoint(connection)
    if not messages:
        return  # exec_driver_sql would run the statement once, without parameters
    statements = put_statements(dialect, style, tables, messages)
    several = len(messages) > 1 if dialect == "sqlite" else dialect == "mysql" and len(statements) > 1
    if several and dialect == "sqlite":
        _begin(connection)
    with translated(messages, tables), whole(connection.exec_driver_sql, several=several):
        for statement in statements:
            connection.exec_driver_sql(statement.sql, list(statement.rows))
    if dialect == "sqlite":
        _note_begun(connection)


def _language(connection: Connection) -> tuple[Dialect, Style]:
    name, driver = connection.dialect.name, connection.dialect.driver
    if name not in DIALECTS:
        raise UnknownHandle(
            f"SQLAlchemy is connected to {name} here; Postroom writes to {', '.join(DIALECTS)}.", dialect=name
        )
    # By driver, not by dialect.paramstyle: the user can set that, while exec_driver_sql passes our text on as it is.
    style: Style = "qmark" if name == "sqlite" else "numeric_dollar" if driver == "asyncpg" else "format"
    return DIALECTS[name], style


def commits_by_itself(connection: Connection) -> bool:
    """Whether AUTOCOMMIT is on, in which SQLAlchemy's transaction is one in name only."""
    if connection.dialect.name == "sqlite":
        # A driver that begins nothing is fine when the user did, as in SQLAlchemy's recipe for SQLite.
        driver = _sqlite_driver(connection)
        begins = driver.isolation_level is not None and getattr(driver, "autocommit", False) is not True
        return not begins and not driver.in_transaction
    if DIALECTS[connection.dialect.name] == "mysql":
        # `autocommit` is a method of these drivers; of MySQL's own connector alone it is the fact.
        server: Any = connection.connection.driver_connection
        return bool(server.get_autocommit() if hasattr(server, "get_autocommit") else server.autocommit)
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


def _not_in_transaction(kind: str, remedy: str) -> NotInTransaction:
    return NotInTransaction(
        f"The SQLAlchemy {kind} is not in a transaction, so the message would not commit with your data: {remedy}."
    )


# ── savepoints on SQLite: whether a transaction is open below the outermost of them ──
#
# Python's sqlite3 runs its own BEGIN before an INSERT, but not before a SAVEPOINT. A savepoint with no BEGIN before it is the
# whole transaction, and its RELEASE commits, though SQLAlchemy still believes that it can roll back. SQLite itself cannot be
# asked which of the two it is, so what is not known to be right is refused.

_begun: WeakSet[Transaction] = WeakSet()
"""Transactions in which a message was put outside all savepoints: the driver has run its BEGIN for them."""


def _check_savepoint(connection: Connection) -> None:
    """Raise NotInTransaction where the end of a savepoint may commit the message. For SQLite alone."""
    if not connection.in_nested_transaction() or connection.get_transaction() in _begun:
        return
    if not _begins_before_savepoints(connection):
        raise NotInTransaction(
            "The SQLAlchemy connection is in a SAVEPOINT, and sqlite3 may have run no BEGIN before it: the end of the "
            "savepoint would then commit the message, even if your transaction is rolled back. Create the engine with "
            'connect_args={"autocommit": False} (Python 3.12 and later) or with the two events of '
            "docs/how-to/use-with-sqlalchemy.md, or put before the savepoint."
        )


def _begin(connection: Connection) -> None:
    """Begin as the driver would before the first row, since it would not before a savepoint."""
    driver = _sqlite_driver(connection)
    if not driver.in_transaction:
        connection.exec_driver_sql(f"BEGIN {driver.isolation_level or ''}")


def _note_begun(connection: Connection) -> None:
    """Remember, after a message was written, that the transaction has begun, unless that was in a savepoint."""
    root = connection.get_transaction()
    if root is not None and not connection.in_nested_transaction():
        _begun.add(root)


def _begins_before_savepoints(connection: Connection) -> bool:
    """Whether the engine is set up so that a BEGIN runs before the first savepoint."""
    driver = _sqlite_driver(connection)
    if getattr(driver, "autocommit", None) is False:
        return True
    # SQLAlchemy's recipe: the driver begins nothing, a listener does. A listener alone may be there for anything.
    return driver.isolation_level is None and bool(connection.dispatch.begin)


def _sqlite_driver(connection: Connection) -> Any:
    """The connection of the standard library, which aiosqlite wraps."""
    driver: Any = connection.connection.driver_connection
    return getattr(driver, "_conn", driver)
