"""What a person asks and does: counts, find, requeue, discard."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from postroom.clock import utcnow
from postroom.contracts.ops import Counts, Progress, Query, Record, Status
from postroom.stores.chunks import Chunk, Done, end_of, in_chunks
from postroom.stores.rows import record_of
from postroom.stores.sql.times import microseconds, moment
from postroom.stores.sqlite.connections import Writer
from postroom.stores.sqlite.settle import Verdicts
from postroom.stores.sqlite.statements import NO_LIMIT, Part, Statements, in_transaction, many, reading


class SQLiteOps(Part):
    """See `postroom.contracts.ops` for what each method promises."""

    def __init__(self, writer: Writer, statements: Statements) -> None:
        super().__init__(writer, statements)
        self._verdicts = Verdicts(statements)

    @reading
    def counts(self, connection: sqlite3.Connection, *, now: datetime | None = None) -> Counts:
        now = now or utcnow()
        by_status: dict[Status, int] = dict(self._run(connection, "counts").fetchall())
        (oldest,) = self._run(connection, "oldest", now=microseconds(now)).fetchone()
        lag = timedelta(0) if oldest is None else max(now - moment(oldest), timedelta(0))
        (parked,) = self._run(connection, "parked").fetchone()
        return Counts(by_status=by_status, lag=lag, parked=parked)

    @reading
    def find(self, connection: sqlite3.Connection, query: Query) -> Sequence[Record]:
        limit = NO_LIMIT if query.limit is None else query.limit
        rows = self._run(connection, "find", **_parameters(query), limit=limit)
        return [record_of(row, moment) for row in rows]

    @reading
    def ids_between(self, connection: sqlite3.Connection, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        rows = self._run(connection, "ids_between", first=str(first), last=str(last), limit=limit)
        return [UUID(id_) for (id_,) in rows]

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._requeue(query, chunk), told)

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._discard(query, chunk, now), told)

    @reading
    def _top(self, connection: sqlite3.Connection) -> int:
        """The last seq that there is."""
        ((top,),) = self._run(connection, "top").fetchall()
        return int(top)

    @in_transaction
    def _requeue(self, connection: sqlite3.Connection, query: Query, chunk: Chunk) -> Done:
        found = self._matching(connection, query, chunk, "dead", "failed")
        last = end_of(list(found), chunk)
        self._run(connection, "requeue", seqs=many(found))
        self._verdicts.look_after(connection, {key for key in found.values() if key is not None})
        return Done(len(found), last)

    @in_transaction
    def _discard(self, connection: sqlite3.Connection, query: Query, chunk: Chunk, now: datetime | None) -> Done:
        found = self._matching(connection, query, chunk, "dead", "failed", "pending")
        last = end_of(list(found), chunk)
        self._run(connection, "discard", seqs=many(found), now=microseconds(now or utcnow()))
        self._verdicts.look_after(connection, {key for key in found.values() if key is not None})
        return Done(len(found), last)

    def _matching(
        self, connection: sqlite3.Connection, query: Query, chunk: Chunk, *statuses: Status
    ) -> dict[int, str | None]:
        facts = _parameters(query) | {"after": chunk.after, "top": chunk.top, "size": chunk.size}
        return dict(self._run(connection, "matching", **facts, statuses=many(statuses)).fetchall())


def _parameters(query: Query) -> dict[str, Any]:
    return {
        "ids": many(str(id) for id in query.ids) if query.ids else None,
        "status": query.status,
        "type": query.type,
        "key": query.key,
        "before": query.before,
        "since": microseconds(query.since),
    }
