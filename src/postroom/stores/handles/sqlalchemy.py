"""SQLAlchemy's `Session` and `Connection`, scoped and async ones too, on any of its drivers for SQLite,
PostgreSQL, MariaDB and MySQL.

A session with several engines writes to its default one. Where that is not the database of the data, give the
connection instead: `outbox.put(session.connection(bind_arguments={"mapper": Order}), message)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroom.errors import NotInTransaction, UnknownHandle
from postroom.message import Message
from postroom.stores._put import Dialect, put_statements
from postroom.stores.handles._errors import translated
from postroom.tables import TableNames

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from postroom.stores._sql import Style

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


@dataclass(slots=True)
class SessionHandle:
    """A session: its connection, without a flush."""

    session: Session

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was begun, by hand or by the session's first work."""
        if not self.session.in_transaction():
            raise _not_in_transaction("Session", "put inside `with session.begin():`")

    def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages; but raise NotInTransaction where the driver commits each statement."""
        write(self.session.connection(), messages, tables)


@dataclass(slots=True)
class AsyncConnectionHandle:
    """An async connection: the sync one inside it."""

    connection: AsyncConnection

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was begun, by hand or by an earlier statement."""
        if self.connection.sync_connection is None or not self.connection.in_transaction():
            raise _not_in_transaction("AsyncConnection", "put inside `async with connection.begin():`")

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages; but raise NotInTransaction where the driver commits each statement."""
        self.check()
        await self.connection.run_sync(write, messages, tables)


@dataclass(slots=True)
class AsyncSessionHandle:
    """An async session: the sync one inside it."""

    session: AsyncSession

    def check(self) -> None:
        """Raise NotInTransaction unless a transaction was begun, by hand or by the session's first work."""
        if not self.session.in_transaction():
            raise _not_in_transaction("AsyncSession", "put inside `async with session.begin():`")

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages; but raise NotInTransaction where the driver commits each statement."""
        self.check()
        await self.session.run_sync(lambda session: write(session.connection(), messages, tables))


def scoped(registry: scoped_session[Any]) -> SessionHandle:
    """The session of the current scope."""
    return SessionHandle(registry())


def async_scoped(registry: async_scoped_session[Any]) -> AsyncSessionHandle:
    """The session of the current scope."""
    return AsyncSessionHandle(registry())


def write(connection: Connection, messages: Sequence[Message], tables: TableNames) -> None:
    """Write the messages by the driver's own SQL, in the connection's transaction."""
    dialect, style = _language(connection)
    if commits_by_itself(connection):
        raise NotInTransaction(
            "The SQLAlchemy connection has isolation_level AUTOCOMMIT, so the message would not commit with your data: "
            "take an engine without it for this transaction."
        )
    if not messages:
        return  # exec_driver_sql would run the statement once, without parameters
    statements = put_statements(dialect, style, tables, messages)
    with translated(messages, tables):
        for statement in statements:
            connection.exec_driver_sql(statement.sql, list(statement.rows))


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
        driver: Any = connection.connection.driver_connection
        begins = driver.isolation_level is not None and getattr(driver, "autocommit", False) is not True
        return not begins and not driver.in_transaction
    if DIALECTS[connection.dialect.name] == "mysql":
        # `autocommit` is a method of these drivers; of MySQL's own connector alone it is the fact.
        driver = connection.connection.driver_connection
        return bool(driver.get_autocommit() if hasattr(driver, "get_autocommit") else driver.autocommit)
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


def _not_in_transaction(kind: str, remedy: str) -> NotInTransaction:
    return NotInTransaction(
        f"The SQLAlchemy {kind} is not in a transaction, so the message would not commit with your data: {remedy}."
    )
