"""Taking tables away again: for what makes them for itself alone, such as a benchmark. Nothing else ever drops one."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.config.tables import Part, TableNames

TABLES: tuple[Part, ...] = ("claim", "hold", "lane", "relay", "schema", "", "inbox_dead", "inbox")


def drop_statements(tables: TableNames) -> Sequence[str]:
    """What to run, in one transaction; what is not there is passed over. The view goes first: it stands on the tables.

    >>> drop_statements(TableNames(prefix="post"))[0]
    'DROP VIEW IF EXISTS "post_messages"'
    """
    view = f"DROP VIEW IF EXISTS {tables.qualified('messages')}"
    return [view, *(f"DROP TABLE IF EXISTS {tables.qualified(part)}" for part in TABLES)]
