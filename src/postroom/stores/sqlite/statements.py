"""The statements of this store, by name, on the user's table names."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from postroom.config.tables import TableNames
from postroom.stores.sql.files import render, statements

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
INBOX_FILES = ("sql/inbox.sql",)


class Statements:
    """Runs a statement by its name."""

    def __init__(self, tables: TableNames, files: Sequence[str] = FILES) -> None:
        self.texts = {
            name: render(sql, "named", tables)[0]
            for file in files
            for name, sql in statements("postroom.stores.sqlite", file).items()
        }

    def run(self, connection: sqlite3.Connection, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        """Run one statement with named parameters."""
        return connection.execute(self.texts[name], parameters)


def many(values: Iterable[Any]) -> str:
    """A list as one parameter: `IN (SELECT value FROM json_each(:values))`."""
    return json.dumps(list(values))
