"""Our tables in your own `MetaData`: to query, to create with yours in a test, and for Alembic to know of.

```python
from postroom.integrations.sqlalchemy import add_tables

add_tables(Base.metadata, "postgresql")
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.errors import ConfigError, MissingDependency

try:
    import sqlalchemy
except ImportError as exc:
    raise MissingDependency(
        "postroom.integrations.sqlalchemy needs SQLAlchemy, which is not installed: run `pip install sqlalchemy`."
    ) from exc

from postroom.config.tables import TableNames
from postroom.integrations.sqlalchemy.ddl import read_tables
from postroom.integrations.sqlalchemy.dialects import known
from postroom.integrations.sqlalchemy.migrate import drop, migrate
from postroom.stores.sql.migrations import LANES_DEFAULT, Script

__all__ = ["Added", "add_tables", "added", "drop", "migrate"]

KEPT = "postroom"
"""Where a metadata's `info` says which outboxes were added to it."""


@dataclass(frozen=True, slots=True)
class Added:
    """An outbox in somebody's metadata."""

    tables: TableNames
    lanes: int | None
    content: Mapping[str, sqlalchemy.Table]


def add_tables(
    metadata: sqlalchemy.MetaData, dialect: str, *, tables: TableNames | None = None, lanes: int | None = None
) -> Mapping[str, sqlalchemy.Table]:
    """Add our tables to your metadata, as they are on this dialect (`sqlite`, `postgresql`, `mysql`, `mariadb`); by name.

    `metadata.create_all` then makes them by our own SQL, whole, as `postroom init` does, on whichever dialect it is called for;
    `metadata.drop_all` drops them with all that is in them. A single `Table.create` or `drop` of ours does nothing.
    """
    names = tables or TableNames()
    script = Script(known(dialect, names), names, lanes or LANES_DEFAULT)
    for part in ("", "inbox"):
        key = f"{names.schema}.{names.name(part)}" if names.schema else names.name(part)
        if key in metadata.tables:
            raise ConfigError(
                f"The metadata already has a table {key}: add ours once, or choose another prefix with "
                'tables=TableNames(prefix="postroom").',
                table=key,
            )
    ours = Added(names, lanes, {table.name: table for table in read_tables(script, metadata)})
    metadata.info.setdefault(KEPT, []).append(ours)
    for table in ours.content.values():
        # SQLAlchemy's makers of DDL go by this name and pass over what they do not know; everything else takes a Table
        # for a Table. Views, lanes and the record of versions are in our files alone, so the files must make the tables.
        table.__visit_name__ = "postroom_table"
    _follow(metadata, ours)
    return ours.content


def added(metadata: sqlalchemy.MetaData) -> list[Added]:
    """The outboxes that were added to a metadata."""
    return list(metadata.info.get(KEPT, ()))


def _follow(metadata: sqlalchemy.MetaData, ours: Added) -> None:
    """Make and drop our tables when the user's are."""

    def make(_: Any, connection: sqlalchemy.Connection, **how: Any) -> None:
        if any(table in ours.content.values() for table in how["tables"]):
            migrate(connection, tables=ours.tables, lanes=ours.lanes)

    def unmake(_: Any, connection: sqlalchemy.Connection, **how: Any) -> None:
        if ours.content[ours.tables.name()] in how["tables"]:
            drop(connection, tables=ours.tables, lose_messages=True)

    sqlalchemy.event.listen(metadata, "before_create", make)
    sqlalchemy.event.listen(metadata, "before_drop", unmake)
