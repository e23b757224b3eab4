"""Putting messages in the `atomic` block that is open, and telling the relay once it has committed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any, ClassVar, TypeVar

from django.db import DEFAULT_DB_ALIAS, DatabaseError, close_old_connections, connections, transaction

from postroom.clock import monotonic
from postroom.config.tables import TableNames
from postroom.errors import SchemaMismatch
from postroom.integrations.django.conf import conf
from postroom.message import Message
from postroom.outbox.outbox import Outbox

Result = TypeVar("Result")

THROTTLE_SECONDS = 0.01
"""At most one hint of a process in this time. A relay that was just woken looks again by itself, after shorter waits."""


def put(message: Message, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Write the message in the `transaction.atomic` that is open on this database; the relay hears of it when that commits.

    ```py
    with transaction.atomic():
        order = Order.objects.create(amount=12)
        put(Message("order.placed", key=str(order.pk), data={"amount": order.amount}))
    ```

    Outside a transaction it raises NotInTransaction. It is `Outbox().put(connections[using], message)`, and a hint.
    """
    put_many([message], using=using)


def put_many(messages: Iterable[Message], *, using: str = DEFAULT_DB_ALIAS) -> None:
    """The same for many, in this order."""
    settings, connection = conf(), connections[using]
    try:
        Outbox(tables=settings.tables).put_many(connection, messages)
    except SchemaMismatch as exc:
        database = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
        raise SchemaMismatch(
            f"The database {using!r} has no table {settings.tables.name()} that this Postroom can write to: "
            f"run `manage.py migrate postroom{database}`.",
            alias=using,
        ) from exc
    if settings.wake and connection.vendor == "postgresql" and connection.in_atomic_block:
        transaction.on_commit(_Hint(connection, settings.tables), using=using)


def fresh_connections(function: Callable[[Message], Result]) -> Callable[[Message], Result]:
    """For a function that a relay calls, `local://shop.mail:send`, and that uses the ORM: `@fresh_connections`.

    Django looks after its connections at the beginning and the end of a request. A relay has no requests: without this a
    connection that broke once would stay broken in that thread.
    """
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"{function.__qualname__} is async, and has no connections of Django's: write it as a plain function."
        )

    @wraps(function)
    def fresh(message: Message) -> Result:
        close_old_connections()
        try:
            return function(message)
        finally:
            close_old_connections()

    return fresh


class _Hint:
    """Tells relays to look, on Django's own connection and after its commit: no other connection, no thread.

    On SQLite a relay notices commits by itself, and on MariaDB and MySQL nobody can be told. A hint that is lost costs
    no more than one poll, so nothing here can fail what was committed.
    """

    last: ClassVar[dict[str, float]] = {}
    """When each database's relays were told."""

    def __init__(self, connection: Any, tables: TableNames) -> None:
        self._connection, self._tables = connection, tables

    def __call__(self) -> None:
        alias, now = self._connection.alias, monotonic()
        if now - self.last.get(alias, -THROTTLE_SECONDS) < THROTTLE_SECONDS:
            return
        self.last[alias] = now
        with suppress(DatabaseError, ImportError):  # without psycopg 3 the channel has no name here
            from postroom.stores.postgres.watch import channel

            with self._connection.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, '')", [channel(self._tables)])
