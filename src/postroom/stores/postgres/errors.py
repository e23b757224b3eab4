"""What PostgreSQL said, by its code: whose fault is it? https://www.postgresql.org/docs/current/errcodes-appendix.html."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from postroom.config.tables import TableNames
from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.sql.migrations import missing

NOT_NOW_CLASSES = ("08", "53", "57P", "58")
"""The connection broke; memory, disk or connections are used up; an operator ends or starts it; its system failed."""
NOT_NOW_CODES = frozenset({"25006"})
"""It is read-only: a standby, a switch-over, or a full disk that somebody looks after."""


def is_not_now(exc: BaseException) -> bool:
    """Does the server as a whole say that it cannot write now? A new connection may find another one that can."""
    code = getattr(exc, "sqlstate", None) or ""
    return code.startswith(NOT_NOW_CLASSES) or code in NOT_NOW_CODES


class Blamed:
    """`with blamed:` around what is done in a transaction: was it our connection on which an error happened?

    A handler may have other connections, to other servers: what those say is its own."""

    def __init__(self, connection: psycopg.BaseConnection[Any]) -> None:
        self._connection, self.is_ours = connection, True

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None:
            # An error of the server's breaks the transaction that it happens in.
            self.is_ours = self._connection.info.transaction_status != TransactionStatus.INTRANS


def translated(exc: psycopg.Error, where: str, tables: TableNames) -> StoreError:
    """What the driver said, as one sentence and a remedy."""
    said = _first_line(exc)
    match exc:
        case errors.UndefinedTable() | errors.InvalidSchemaName() | errors.UndefinedColumn():
            return missing(where, tables)
        case errors.InsufficientPrivilege():
            return StoreError(f"PostgreSQL at {where} refuses: {said}; grant this user the rights it lacks.")
        case errors.ReadOnlySqlTransaction():
            return StoreUnavailable(
                f"PostgreSQL at {where} is read-only now: {said}; Postroom waits. If it stays so, name the primary, or all "
                "servers with target_session_attrs=read-write."
            )
        case _ if is_not_now(exc) and exc.sqlstate:
            return StoreUnavailable(f"PostgreSQL at {where} cannot be used now: {said}; check the server.")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.IdleInTransactionSessionTimeout():
            return StoreUnavailable(
                f"PostgreSQL at {where} cannot be used: {said}; check that it runs, the address, the user and the password."
            )
    return StoreError(f"PostgreSQL at {where} refuses: {said}.")


def _first_line(exc: psycopg.Error) -> str:
    said = (exc.diag.message_primary or str(exc)).strip().splitlines()
    return said[-1].strip().rstrip(".?") if said else type(exc).__name__
