"""What a person asks and does: counts, find, requeue, discard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from postroom.contracts.ops import Counts, Query, Record, Status
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Statements
from postroom.stores.rows import record_of
from postroom.stores.sql.ops import SqlOps
from postroom.stores.sql.parts import in_transaction


class PostgresOps(SqlOps[Connection]):
    """See `postroom.contracts.ops` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements, Verdicts(statements))

    @in_transaction
    async def counts(self, connection: Connection, *, now: datetime | None = None) -> Counts:
        by_status: dict[Status, int] = dict(await self._rows(connection, "counts"))
        ((lag,),) = await self._rows(connection, "oldest", now=now)
        ((parked,),) = await self._rows(connection, "parked")
        return Counts(by_status=by_status, lag=max(lag or timedelta(0), timedelta(0)), parked=parked)

    @in_transaction
    async def find(self, connection: Connection, query: Query) -> Sequence[Record]:
        rows = await self._rows(connection, "find", **self._parameters(query), limit=query.limit)
        return [record_of(row) for row in rows]

    @in_transaction
    async def ids_between(self, connection: Connection, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        rows = await self._rows(connection, "ids_between", first=first, last=last, limit=limit)
        return [id_ for (id_,) in rows]

    def _parameters(self, query: Query) -> dict[str, Any]:
        return {
            "ids": list(query.ids) or None,
            "status": query.status,
            "type": query.type,
            "key": query.key,
            "before": query.before,
            "since": query.since,
        }
