"""What `alembic revision --autogenerate` and `alembic check` make of our tables: nothing, or our own migrations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations.ops import CreateTableOp, DropTableOp, MigrateOperation, ModifyTableOps, UpgradeOps
from alembic.util import DispatchPriority, PriorityDispatchResult
from sqlalchemy import MetaData

from postroom.config.tables import TableNames
from postroom.integrations.sqlalchemy import Added, added
from postroom.integrations.sqlalchemy.dialects import SchemaConnection
from postroom.integrations.sqlalchemy.migrate import checked_version


class PostroomUpgradeOp(MigrateOperation):
    """What autogenerate writes when our tables are missing, or older than this Postroom."""

    def __init__(self, ours: Added, since: int, to: int) -> None:
        self.ours, self.since, self.to = ours, since, to

    def reverse(self) -> PostroomDowngradeOp:
        return PostroomDowngradeOp(self.ours, self.since)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("upgrade_postroom", self.ours.tables.name(), self.since, self.to)


class PostroomDowngradeOp(MigrateOperation):
    """The way back."""

    def __init__(self, ours: Added, to: int) -> None:
        self.ours, self.to = ours, to

    def reverse(self) -> PostroomUpgradeOp:
        raise NotImplementedError("it is only ever the reverse of an upgrade")

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("downgrade_postroom", self.ours.tables.name(), self.to)


@comparators.dispatch_for("schema", priority=DispatchPriority.LAST)
def compare(autogen: AutogenContext, upgrade_ops: UpgradeOps, _: Collection[str | None]) -> PriorityDispatchResult:
    """Take out what Alembic would do to our tables, and put in what we do, where there is anything to do."""
    for ours in [each for metadata in _all(autogen.metadata) for each in added(metadata)]:
        upgrade_ops.ops[:] = [op for op in upgrade_ops.ops if not _is_of(op, ours, autogen)]
        if autogen.connection is None:
            continue
        place = SchemaConnection(autogen.connection, ours.tables)
        found, newest = place.versions()[0], checked_version(place.dialect, None)
        if found < newest:
            upgrade_ops.ops.append(PostroomUpgradeOp(ours, found, newest))
    return PriorityDispatchResult.CONTINUE


def _all(metadata: MetaData | Sequence[MetaData] | None) -> Sequence[MetaData]:
    """An environment may have one, or several."""
    return [metadata] if isinstance(metadata, MetaData) else metadata or []


def _is_of(op: MigrateOperation, ours: Added, autogen: AutogenContext) -> bool:
    if not isinstance(op, (CreateTableOp, DropTableOp, ModifyTableOps)) or op.table_name not in ours.content:
        return False
    default = autogen.migration_context.dialect.default_schema_name
    return (op.schema or default) == (ours.tables.schema or default)


@renderers.dispatch_for(PostroomUpgradeOp)
def render_upgrade(autogen: AutogenContext, op: PostroomUpgradeOp) -> str:
    """As `upgrade` is called by hand."""
    since = f", since={op.since}" if op.since else ""
    lanes = f", lanes={op.ours.lanes}" if op.ours.lanes else ""
    return f"postroom.upgrade(op, to={op.to}{since}{lanes}{_names(autogen, op.ours.tables)})"


@renderers.dispatch_for(PostroomDowngradeOp)
def render_downgrade(autogen: AutogenContext, op: PostroomDowngradeOp) -> str:
    """As `downgrade` is called by hand."""
    to = f", to={op.to}" if op.to else ""
    return f"postroom.downgrade(op{to}{_names(autogen, op.ours.tables)})"


def _names(autogen: AutogenContext, tables: TableNames) -> str:
    autogen.imports.add("from postroom.integrations import alembic as postroom")
    if tables == TableNames():
        return ""
    autogen.imports.add("from postroom import TableNames")
    schema = f", schema={tables.schema!r}" if tables.schema else ""
    return f", tables=TableNames(prefix={tables.prefix!r}{schema})"
