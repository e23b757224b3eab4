"""Savepoints of SQLAlchemy on SQLite: whether a transaction is open below the outermost of them.

Python's sqlite3 runs its own BEGIN before an INSERT, but not before a SAVEPOINT. A savepoint with no BEGIN before it is the
whole transaction, and its RELEASE commits, though SQLAlchemy still believes that it can roll back. SQLite itself cannot be
asked which of the two it is, so what is not known to be right is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from postroom.errors import NotInTransaction

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import Transaction

_begun: WeakSet[Transaction] = WeakSet()
"""Transactions in which a message was put outside all savepoints: the driver has run its BEGIN for them."""


def check_savepoint(connection: Connection) -> None:
    """Raise NotInTransaction where the end of a savepoint may commit the message. For SQLite alone."""
    if not connection.in_nested_transaction() or connection.get_transaction() in _begun:
        return
    if not begins_before_savepoints(connection):
        raise NotInTransaction(
            "The SQLAlchemy connection is in a SAVEPOINT, and sqlite3 may have run no BEGIN before it: the end of the "
            "savepoint would then commit the message, even if your transaction is rolled back. Create the engine with "
            'connect_args={"autocommit": False} (Python 3.12 and later) or with the two events of '
            "docs/how-to/use-with-sqlalchemy.md, or put before the savepoint."
        )


def begin(connection: Connection) -> None:
    """Begin as the driver would before the first row, since it would not before a savepoint."""
    driver = sqlite_driver(connection)
    if not driver.in_transaction:
        connection.exec_driver_sql(f"BEGIN {driver.isolation_level or ''}")


def note_begun(connection: Connection) -> None:
    """Remember, after a message was written, that the transaction has begun, unless that was in a savepoint."""
    root = connection.get_transaction()
    if root is not None and not connection.in_nested_transaction():
        _begun.add(root)


def begins_before_savepoints(connection: Connection) -> bool:
    """Whether the engine is set up so that a BEGIN runs before the first savepoint."""
    driver = sqlite_driver(connection)
    if getattr(driver, "autocommit", None) is False:
        return True
    # SQLAlchemy's recipe: the driver begins nothing, a listener does. A listener alone may be there for anything.
    return driver.isolation_level is None and bool(connection.dispatch.begin)


def sqlite_driver(connection: Connection) -> Any:
    """The connection of the standard library, which aiosqlite wraps."""
    driver: Any = connection.connection.driver_connection
    return getattr(driver, "_conn", driver)
