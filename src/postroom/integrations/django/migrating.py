"""The tables by Django's migrations: made by the very code of `postroom init`, on Django's own connection.

So `postroom init` and `manage.py migrate` find what the other has made, and do nothing twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.db import router
from django.db.migrations.operations.base import Operation

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, MissingDependency, PostroomError
from postroom.integrations.django.addresses import store_url, unsupported
from postroom.integrations.django.awaiting import Lent, at_once
from postroom.integrations.django.conf import conf
from postroom.integrations.django.dropping import drop
from postroom.stores.sql.files import backquoted, rename
from postroom.stores.sql.migrations import steps
from postroom.urls import redact

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
                drop(schema_editor, conf().tables)


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
    at_once(PostgresSchema(Lent(connection), tables, None, shown).migrate())


def _mysql(connection: Any, tables: TableNames, shown: str) -> None:
    try:
        from postroom.stores.mysql.schema import MySQLSchema
    except ImportError as exc:
        raise MissingDependency(
            "MariaDB and MySQL need the driver asyncmy, which is not installed: run `pip install 'postroom[mysql]'`.",
            extra="mysql",
        ) from exc
    at_once(MySQLSchema(Lent(connection), tables, None, shown).migrate())


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
