"""`manage.py migrate postroom zero`: the tables are taken away, unless something would be lost with them."""

from __future__ import annotations

from typing import Any

from postroom.config.tables import TableNames
from postroom.errors import StoreError
from postroom.ops.words import count
from postroom.stores.sql.files import backquoted
from postroom.stores.sql.migrations import drop_statements


def drop(schema_editor: Any, tables: TableNames) -> None:
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
                f"The outbox holds {count(undelivered, 'message')} that nobody has received yet: let `manage.py postroom relay "
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
