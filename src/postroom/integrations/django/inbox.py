"""The inbox inside Django's own transactions: a sync handler uses the ORM, and its effects commit with the inbox's row.

An async handler gets the driver's own connection, as everywhere: Django's ORM has no async transactions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from secrets import randbits
from threading import Lock
from typing import Any, Self
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.inbox import InboxStore
from postroom.contracts.store import Store
from postroom.contracts.transport import Identity
from postroom.errors import StoreUnavailable
from postroom.handles.mysql import IN_TRANSACTION as MYSQL_IN_TRANSACTION
from postroom.stores.rows import by_source, in_turn, kept_source
from postroom.stores.sql.files import backquoted, render, statements
from postroom.stores.sql.times import microseconds

PACKAGES = {
    "sqlite": "postroom.stores.sqlite",
    "postgresql": "postroom.stores.postgres",
    "mysql": "postroom.stores.mysql",
}
IDLE, IN_TRANSACTION = 0, 2
"""libpq's PQTRANS_IDLE: no transaction is open. PQTRANS_INTRANS: one is open, and no statement in it has failed."""
TOKEN_BITS = 63


@dataclass(slots=True)
class DjangoTransaction:
    """See `postroom.contracts.inbox.BlockingTransaction` for what each method promises."""

    handle: Any
    """Django's connection: `Outbox.put` takes it, and the ORM uses it by itself."""
    tables: TableNames

    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        new = set[Identity]()
        with _unavailable(self.handle.alias), self.handle.cursor() as cursor:
            for source, ids in by_source(events):
                facts = {"consumer": consumer, "source": kept_source(source), "ids": self._list(ids)}
                match self.handle.vendor:
                    case "sqlite":
                        cursor.execute(self._text("remember"), facts | {"now": microseconds(utcnow())})
                    case "mysql":
                        marked = facts | {"token": randbits(TOKEN_BITS)}
                        cursor.execute(self._text("remember"), marked | {"ids": json.dumps(in_turn(ids))})
                        cursor.execute(self._text("remembered"), marked)
                    case _:
                        cursor.execute(self._text("remember"), facts)
                new.update(Identity(source, UUID(str(id_))) for (id_,) in cursor.fetchall())
        return new

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        with _unavailable(self.handle.alias), self.handle.cursor() as cursor:
            for source, ids in by_source(events):
                facts = {"consumer": consumer, "source": kept_source(source), "ids": self._list(ids)}
                cursor.execute(self._text("unbury"), facts)

    def _list(self, ids: Collection[UUID]) -> Any:
        """The ids as a condition of this database takes them."""
        names = in_turn(ids)
        match self.handle.vendor:
            case "sqlite":
                return json.dumps(names)
            case "mysql":
                return tuple(names)
        return names

    def is_ended(self) -> bool:
        connection, raw = self.handle, self.handle.connection
        if connection.closed_in_transaction or not connection.in_atomic_block:
            return True
        match connection.vendor:
            case "sqlite":
                return not raw.in_transaction
            case "postgresql":
                return not raw.closed and int(raw.info.transaction_status) == IDLE
        # mysqlclient does not show what the server said last; PyMySQL does.
        status = getattr(raw, "server_status", None)
        return status is not None and not status & MYSQL_IN_TRANSACTION

    def is_whole(self) -> bool:
        connection = self.handle
        if connection.needs_rollback or self.is_ended():
            return False
        match connection.vendor:
            case "sqlite":
                return bool(connection.connection.in_transaction)
            case "postgresql":
                # After an error inside it, PostgreSQL answers COMMIT with a rollback, and calls that no error.
                return int(connection.connection.info.transaction_status) == IN_TRANSACTION
        # After a deadlock there is nothing left to commit, and MySQL would call that no error.
        return not connection.errors_occurred

    def is_away(self) -> bool:
        raw = self.handle.connection
        if self.handle.closed_in_transaction:  # by the handler
            return False
        match self.handle.vendor:
            case "sqlite":
                return False
            case "postgresql":  # not `is_usable`, which takes a transaction that failed for a connection that broke
                return raw is None or bool(raw.closed)
        return raw is None or not self.handle.is_usable()

    def _text(self, name: str) -> str:
        text, _ = render(statements(PACKAGES[self.handle.vendor], "sql/inbox.sql")[name], "pyformat", self.tables)
        return backquoted(text) if self.handle.vendor == "mysql" else text


class DjangoStore:
    """A store whose sync handlers run in Django's transactions. All else is the inner store's own."""

    def __init__(self, inner: Store, alias: str, tables: TableNames) -> None:
        self._inner, self.inbox = inner, DjangoInbox(inner.inbox, alias, tables)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Close the inner store, and the connections of the threads that handled."""
        await asyncio.to_thread(self.inbox.hang_up)
        await self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class DjangoInbox:
    """An inbox whose sync handlers run in `transaction.atomic` of one database. All else is the store's own."""

    def __init__(self, inner: InboxStore, alias: str, tables: TableNames) -> None:
        self._inner, self._alias, self._tables = inner, alias, tables
        self._used: dict[int, Any] = {}
        """Django has a connection for each thread."""
        # One transaction writes at a time: who waits here does not use up the patience of SQLite's own lock.
        self._turn = Lock() if connections[alias].vendor == "sqlite" else nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def blocking(self) -> Iterator[DjangoTransaction]:
        """A transaction of Django's; what a handler raises comes out as it is, after the rollback."""
        connection = connections[self._alias]
        self._used[id(connection)] = connection
        connection.close_if_unusable_or_obsolete()
        handling = False
        try:
            with self._turn, transaction.atomic(using=self._alias, durable=True):
                handling = True
                yield DjangoTransaction(connection, self._tables)
                handling = False
        except (OperationalError, InterfaceError) as exc:
            if handling:  # the handler's own
                raise
            raise _away(self._alias, exc) from exc

    def hang_up(self) -> None:
        """Close the connections of the threads that handled: nobody is left to use them."""
        while self._used:
            _, connection = self._used.popitem()
            connection.inc_thread_sharing()
            with suppress(DatabaseError):  # it was broken
                connection.close()


@contextmanager
def _unavailable(alias: str) -> Iterator[None]:
    """A database that cannot write down what is handled is away, or busy: no fault of the message."""
    try:
        yield
    except (OperationalError, InterfaceError) as exc:
        raise _away(alias, exc) from exc


def _away(alias: str, exc: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"The database {alias!r} cannot be used: {exc}; check that it runs.", alias=alias)
