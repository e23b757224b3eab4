"""The errors of MariaDB and MySQL that are about us. They come as a number and a text, from every driver."""

from __future__ import annotations

import re
from collections.abc import Sequence

from postroom.config.tables import TableNames
from postroom.message import Message

DRIVERS = ("pymysql", "MySQLdb", "asyncmy", "aiomysql")
DUPLICATE, NO_TABLE, NO_COLUMN = 1062, 1146, 1054


def number_of(error: BaseException) -> int | None:
    """The number that the server gave it, when it is one of these drivers'."""
    if type(error).__module__.partition(".")[0] not in DRIVERS or not error.args:
        return None
    number = error.args[0]
    return number if isinstance(number, int) else None


def duplicate(error: BaseException, messages: Sequence[Message], tables: TableNames) -> tuple[str, str | None] | None:
    """The column that holds a value twice, and which message's it is; None when the index is not one of ours."""
    found = re.search(rf"(?s)entry '(.*)' for key '(?:\w+\.)?{tables.name()}_(id_key|idempotency)'", str(error))
    if found is None:
        return None
    column = "id" if found[2] == "id_key" else "idempotency_key"
    # A long value is cut in the text: then nobody is named.
    values = [value for message in messages if (value := str(getattr(message, column))) == found[1]]
    return column, values[0] if values else None


def is_about_our_columns(error: BaseException, names: Sequence[str]) -> bool:
    """Does the table lack a column that we write? A trigger of the user's may look for others."""
    found = re.search(r"column '(?:\w+\.)*(\w+)'", str(error))
    return found is not None and found[1] in names
