"""What a person asks and does: counts, find, requeue, discard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from postroom.contracts.ops import Counts, Query, Record, Status
from postroom.stores.mysql.connections import Connection, Connections
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import EVERYTHING, Statements, many, text_of
from postroom.stores.rows import record_of
from postroom.stores.sql.ops import SqlOps
from postroom.stores.sql.parts import in_transaction


class MySQLOps(SqlOps[Connection]):
    """See `postroom.contracts.ops` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements, Verdicts(statements))

    @in_transaction
    async def counts(self, connection: Connection, *, now: datetime | None = None) -> Counts:
        by_status: dict[Status, int] = dict(await self._rows(connection, "counts"))
        ((oldest, at),) = await self._rows(connection, "oldest", now=text_of(now))
        lag = timedelta(0) if oldest is None else max(at - oldest, timedelta(0))
        ((parked,),) = await self._rows(connection, "parked")
        return Counts(by_status=by_status, lag=lag, parked=parked)

    @in_transaction
    async def find(self, connection: Connection, query: Query) -> Sequence[Record]:
        limit = EVERYTHING if query.limit is None else query.limit
        rows = await self._rows(connection, "find", **self._parameters(query), limit=limit)
        return [record_of(row) for row in rows]

    @in_transaction
    async def ids_between(self, connection: Connection, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        rows = await self._rows(connection, "ids_between", first=str(first), last=str(last), limit=limit)
        return [UUID(id_) for (id_,) in rows]

    def _parameters(self, query: Query) -> dict[str, Any]:
        return {
            "any_id": not query.ids,
            "ids": many(str(id) for id in query.ids),
            "status": query.status,
            "type": query.type,
            "key": query.key,
            "before": query.before,
            "since": text_of(query.since),
        }
