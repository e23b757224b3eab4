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
from postroom.errors import StoreUnavailable
from postroom.inbox_store import InboxStore
from postroom.stores._inbox import in_turn
from postroom.stores._sql import backquoted, render, statements
from postroom.stores._time import microseconds
from postroom.tables import TableNames

PACKAGES = {
    "sqlite": "postroom.stores.sqlite",
    "postgresql": "postroom.stores.postgres",
    "mysql": "postroom.stores.mysql",
}
IN_TRANSACTION = 2
"""libpq's PQTRANS_INTRANS: a transaction is open, and no statement in it has failed."""
TOKEN_BITS = 63


@dataclass(slots=True)
class DjangoTransaction:
    """See `postroom.inbox_store.BlockingTransaction` for what each method promises."""

    handle: Any
    """Django's connection: `Outbox.put` takes it, and the ORM uses it by itself."""
    tables: TableNames

    def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        with _unavailable(self.handle.alias), self.handle.cursor() as cursor:
            match self.handle.vendor:
                case "sqlite":
                    facts = {"consumer": consumer, "ids": json.dumps(in_turn(ids)), "now": microseconds(utcnow())}
                    cursor.execute(self._text("remember"), facts)
                case "mysql":
                    token = randbits(TOKEN_BITS)
                    facts = {"consumer": consumer, "ids": json.dumps(in_turn(ids)), "token": token}
                    cursor.execute(self._text("remember"), facts)
                    cursor.execute(self._text("remembered"), facts | {"ids": tuple(in_turn(ids))})
                case _:
                    cursor.execute(self._text("remember"), {"consumer": consumer, "ids": in_turn(ids)})
            return {UUID(str(id_)) for (id_,) in cursor.fetchall()}

    def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        names: Any = in_turn(ids)
        match self.handle.vendor:
            case "sqlite":
                names = json.dumps(names)
            case "mysql":
                names = tuple(names)
        with _unavailable(self.handle.alias), self.handle.cursor() as cursor:
            cursor.execute(self._text("unpark"), {"consumer": consumer, "ids": names})

    def is_whole(self) -> bool:
        connection = self.handle
        if connection.needs_rollback or not connection.in_atomic_block:
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
        match self.handle.vendor:
            case "sqlite":
                return False
            case "postgresql":  # not `is_usable`, which takes a transaction that failed for a connection that broke
                return raw is None or bool(raw.closed)
        return raw is None or not self.handle.is_usable()

    def _text(self, name: str) -> str:
        text, _ = render(statements(PACKAGES[self.handle.vendor], "sql/inbox.sql")[name], "pyformat", self.tables)
        return backquoted(text) if self.handle.vendor == "mysql" else text


class DjangoInbox:
    """An inbox's store whose sync handlers run in `transaction.atomic` of one database. All else is the store's own."""

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

    async def close(self) -> None:
        """Close also the connections of the threads that handled: nobody is left to use them."""
        await asyncio.to_thread(self._hang_up)
        await self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _hang_up(self) -> None:
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
