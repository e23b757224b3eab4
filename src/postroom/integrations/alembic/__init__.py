"""Our tables in your own migrations.

In `env.py`, after `add_tables(target_metadata, …)`: `import postroom.integrations.alembic`. Then `alembic revision
--autogenerate` writes a migration that brings our tables up to date where they are not, and leaves them alone otherwise.
Or by hand:

```python
from postroom.integrations import alembic as postroom


def upgrade() -> None:
    postroom.upgrade(op, to=1)


def downgrade() -> None:
    postroom.downgrade(op)
```
"""

from __future__ import annotations

from typing import Any

from postroom.errors import ConfigError, MissingDependency

try:
    from alembic.runtime.migration import MigrationContext

    from postroom.integrations.alembic import autogenerate  # noqa: F401 - for what it registers
except ImportError as exc:
    raise MissingDependency(
        "postroom.integrations.alembic needs Alembic 1.18 or later, which is not installed: run `pip install -U alembic`."
    ) from exc

from postroom.config.tables import TableNames
from postroom.integrations.sqlalchemy import drop, migrate
from postroom.integrations.sqlalchemy.dialects import known
from postroom.integrations.sqlalchemy.migrate import checked_version
from postroom.stores.sql.migrations import LANES_DEFAULT, Script, drop_statements
from postroom.stores.sql.mysql_server import Version

__all__ = ["downgrade", "upgrade"]


def upgrade(
    op: Any, *, to: int | None = None, since: int = 0, tables: TableNames | None = None, lanes: int | None = None
) -> None:
    """Bring our tables up to a version, on the migration's own connection and in its transaction. `op` is Alembic's.

    What is there already stays: where `postroom init` was first, this does nothing. `since` matters to `--sql` alone, which
    prints the steps after it: there is no database to ask.
    """
    context: MigrationContext = op.get_context()
    if not context.as_sql:
        migrate(_connection(context), tables=tables, lanes=lanes, to=to)
        return
    script = _script(context, tables, lanes)
    for statement in script.room() if since == 0 else ():
        _print(context, statement)
    for step in script.between(since, checked_version(script.dialect, to)):
        for statement in script.step(step):
            _print(context, statement)


def downgrade(op: Any, *, to: int = 0, tables: TableNames | None = None, lose_messages: bool = False) -> None:
    """Take our tables away; StoreError while they hold messages that were not delivered, or the memory of the inbox.

    Back to a version above 0 there is no way, and nothing is done: later tables serve, and messages are kept.
    """
    context: MigrationContext = op.get_context()
    if to > 0:
        return
    if not context.as_sql:
        drop(_connection(context), tables=tables, lose_messages=lose_messages)
        return
    if not lose_messages:
        raise ConfigError(
            "With --sql Postroom cannot check whether its tables still hold messages: say "
            "downgrade(op, lose_messages=True) if they may be lost."
        )
    script = _script(context, tables, None)
    for statement in drop_statements(script.tables):
        _print(context, script.quoted(statement))


def _script(context: MigrationContext, tables: TableNames | None, lanes: int | None) -> Script:
    names = tables or TableNames()
    dialect = known(context.dialect.name, names)
    # Without a server, its family is what the URL says.
    collation = {"collation": Version("mysql", ()).collation} if context.dialect.name == "mysql" else {}
    return Script(dialect, names, lanes or LANES_DEFAULT, **collation)


def _connection(context: MigrationContext) -> Any:
    if context.connection is None:
        raise ConfigError("Alembic has no connection here: run the migration online, or with --sql.")
    return context.connection


def _print(context: MigrationContext, statement: str) -> None:
    context.impl.static_output(f"{statement};")
