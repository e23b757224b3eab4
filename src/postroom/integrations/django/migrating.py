"""The tables by Django's migrations: made by the very code of `postroom init`, on Django's own connection.

So `postroom init` and `manage.py migrate` find what the other has made, and do nothing twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.management.base import CommandError
from django.db import router
from django.db.migrations.operations.base import Operation

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, MissingDependency, PostroomError, StoreError
from postroom.integrations.django.conf import conf, store_url, unsupported
from postroom.ops.words import count
from postroom.stores.sql.files import backquoted, rename
from postroom.stores.sql.migrations import drop_statements, steps
from postroom.urls import redact

Result = TypeVar("Result")

PACKAGES = {
    "sqlite": "postroom.stores.sqlite",
    "postgresql": "postroom.stores.postgres",
    "mysql": "postroom.stores.mysql",
}
INIT = re.compile(r"`postroom init[^`]*--table-prefix[^`]*`")


class MakeTables(Operation):
    """Bring the tables to the version that this Postroom needs, at least `version`; back, take them away."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, version: int) -> None:
        self.version = version

    def describe(self) -> str:
        return f"Make the tables of Postroom, version {self.version}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The model is another operation's."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - Django's signature
        if _is_ours(app_label, schema_editor):
            with _told():
                _make(schema_editor, conf().tables)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - the same
        if _is_ours(app_label, schema_editor):
            with _told():
                _drop(schema_editor, conf().tables)


def _is_ours(app_label: str, schema_editor: Any) -> bool:
    """Does the project's router want our tables in this database?"""
    return bool(router.allow_migrate(schema_editor.connection.alias, app_label, model_name="outboxmessage"))


def _make(schema_editor: Any, tables: TableNames) -> None:
    connection = schema_editor.connection
    if connection.vendor not in PACKAGES:
        raise unsupported(connection.alias, connection.vendor)
    if schema_editor.collect_sql:  # manage.py sqlmigrate
        _write_down(schema_editor, tables)
    else:
        connection.ensure_connection()
        MAKERS[connection.vendor](connection, tables, _shown(connection))


def _write_down(schema_editor: Any, tables: TableNames) -> None:
    schema_editor.collected_sql.append(
        "-- To be read. Let `manage.py migrate` run it: what is there already is left out, and what was done is written "
        f"into {tables.name('schema')}, by which Postroom knows the tables."
    )
    for step in steps(PACKAGES[schema_editor.connection.vendor]):
        script = rename(step.sql, tables)
        schema_editor.collected_sql.append(backquoted(script) if schema_editor.connection.vendor == "mysql" else script)


def _sqlite(connection: Any, tables: TableNames, shown: str) -> None:
    from postroom.stores.sqlite.schema import migrate

    migrate(connection.connection, tables, None, shown)


def _postgres(connection: Any, tables: TableNames, shown: str) -> None:
    try:
        from postroom.stores.postgres.schema import PostgresSchema
    except ImportError as exc:
        raise MissingDependency(
            "PostgreSQL needs the driver psycopg 3, which is not installed: run `pip install 'postroom[postgres]'`.",
            extra="postgres",
        ) from exc
    _at_once(PostgresSchema(_Lent(connection), tables, None, shown).migrate())


def _mysql(connection: Any, tables: TableNames, shown: str) -> None:
    try:
        from postroom.stores.mysql.schema import MySQLSchema
    except ImportError as exc:
        raise MissingDependency(
            "MariaDB and MySQL need the driver asyncmy, which is not installed: run `pip install 'postroom[mysql]'`.",
            extra="mysql",
        ) from exc
    _at_once(MySQLSchema(_Lent(connection), tables, None, shown).migrate())


MAKERS: dict[str, Callable[[Any, TableNames, str], None]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "mysql": _mysql,
}


def _shown(connection: Any) -> str:
    """The database as a sentence names it."""
    try:
        return redact(store_url(connection.alias))
    except ConfigError:  # in memory, as in tests: it can be migrated, though no relay could open it
        return f"the database {connection.alias!r}"


@contextmanager
def _told() -> Any:
    """What is wrong, as a sentence of manage.py's, with the remedy that Django has for it."""
    try:
        yield
    except PostroomError as exc:
        remedy = '`POSTROOM = {"TABLE_PREFIX": "postroom"}` in your settings'
        raise CommandError(INIT.sub(remedy, str(exc))) from exc


# ── backwards: the tables are taken away, unless something would be lost with them ──


def _drop(schema_editor: Any, tables: TableNames) -> None:
    """Take the tables away; StoreError where a message was not delivered yet, or the inbox remembers one."""
    connection = schema_editor.connection
    if not schema_editor.collect_sql:
        _require_empty(connection, tables)
    for statement in drop_statements(tables):
        schema_editor.execute(backquoted(statement) if connection.vendor == "mysql" else statement, params=None)


def _require_empty(connection: Any, tables: TableNames) -> None:
    there = connection.introspection.table_names()
    if tables.name() in there:
        undelivered = _number(connection, tables.name(), "outcome IS NULL OR outcome = 'dead'")
        if undelivered:
            raise StoreError(
                f"The outbox holds {count(undelivered, 'message')} still to be delivered: let `manage.py postroom relay "
                "--drain` carry them, or give them up with `manage.py postroom discard`. The tables are left as they are."
            )
    if tables.name("inbox") in there:
        remembered = _number(connection, tables.name("inbox"), "true")
        if remembered:
            raise StoreError(
                f"The inbox remembers {count(remembered, 'message')}, which would be handled again if they came again: if that "
                f"is right, empty the table {tables.name('inbox')} first. The tables are left as they are."
            )


def _number(connection: Any, table: str, condition: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)} WHERE {condition}")  # noqa: S608 - a checked name
        return int(cursor.fetchone()[0])


# ── Django's connection, as the stores' code for async drivers takes one. Nothing here ever waits for a loop ──


def _at_once(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that only awaits what is below: it never has to wait, so no event loop is needed."""
    try:
        coroutine.send(None)
    except StopIteration as exc:
        result: Result = exc.value
        return result
    coroutine.close()
    raise AssertionError("it waited for something")


@dataclass(slots=True)
class _Awaitable:
    """A connection of Django: with psycopg's `execute` and asyncmy's `cursor`, as far as the making of tables needs them."""

    connection: Any

    @classmethod
    def of(cls, connection: Any) -> Any:
        """For a function that says it wants the driver's own."""
        return cls(connection)

    @property
    def info(self) -> Any:
        """What psycopg, 3 or 2, says of the connection."""
        return self.connection.connection.info

    def cursor(self) -> _AwaitableCursor:
        return _AwaitableCursor(self.connection)

    async def execute(self, query: Any, parameters: Sequence[Any] | None = None, **_: bool) -> _AwaitableCursor:
        cursor = self.cursor()
        # As in psycopg; what may be prepared is left to Django.
        await cursor.execute(_text(query), parameters)
        return cursor


class _Lent:
    """Lends Django's connection to a part of a store: what the part does is in the transaction that is open there."""

    def __init__(self, connection: Any) -> None:
        self._connection = _Awaitable.of(connection)

    async def run(self, work: Callable[[Any], Any]) -> Any:
        return await work(self._connection)

    ask = run


class _AwaitableCursor:
    """What was found is fetched at once: the cursor of Django's is closed again."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    async def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            self._rows = list(cursor.fetchall()) if cursor.description else []

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None


def _text(query: Any) -> str:
    """What psycopg takes for a query: a text, bytes, or a thing of its own."""
    match query:
        case str():
            return query
        case bytes():
            return query.decode()
    composed: str = query.as_string(None)
    return composed
