"""What a person asks and does: counts, find, requeue, discard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from postroom.contracts.ops import Counts, Progress, Query, Record, Status
from postroom.stores.chunks import Chunk, Done, end_of, in_chunks
from postroom.stores.mysql.connections import Connection, Connections
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import (
    EVERYTHING,
    Part,
    Statements,
    in_transaction,
    many,
    single_statement,
    text_of,
)
from postroom.stores.rows import message_of


class MySQLOps(Part):
    """See `postroom.contracts.ops` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements)
        self._verdicts = Verdicts(statements)

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
        rows = await self._rows(connection, "find", **_parameters(query), limit=limit)
        return [_record(*row) for row in rows]

    @in_transaction
    async def ids_between(self, connection: Connection, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        rows = await self._rows(connection, "ids_between", first=str(first), last=str(last), limit=limit)
        return [UUID(id_) for (id_,) in rows]

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._requeue(query, chunk), told)

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._discard(query, chunk, now), told)

    @single_statement
    async def _top(self, connection: Connection) -> int:
        """The last seq that there is."""
        ((top,),) = await self._rows(connection, "top")
        return int(top)

    @in_transaction
    async def _requeue(self, connection: Connection, query: Query, chunk: Chunk) -> Done:
        found, last = await self._alone_with(connection, query, chunk, "dead", "failed")
        await self._run(connection, "requeue", seqs=many(found))
        await self._verdicts.look_after(connection, {key for key in found.values() if key is not None})
        return Done(len(found), last)

    @in_transaction
    async def _discard(self, connection: Connection, query: Query, chunk: Chunk, now: datetime | None) -> Done:
        found, last = await self._alone_with(connection, query, chunk, "dead", "failed", "pending")
        await self._run(connection, "discard", seqs=many(found), now=text_of(now))
        await self._verdicts.look_after(connection, {key for key in found.values() if key is not None})
        return Done(len(found), last)

    async def _alone_with(
        self, connection: Connection, query: Query, chunk: Chunk, *statuses: Status
    ) -> tuple[dict[int, str | None], int | None]:
        """The messages that match, in one of these statuses, with no claim possible until this transaction ends; and where
        the next chunk begins."""
        facts = _parameters(query) | {"after": chunk.after, "top": chunk.top, "size": chunk.size}
        rows = await self._rows(connection, "matching", **facts, statuses=statuses)
        await self._run(connection, "lock_lanes", lanes=many(sorted({lane for _, lane, _ in rows})))
        still = await self._rows(connection, "still", seqs=many(seq for seq, *_ in rows), statuses=statuses)
        return dict(still), end_of([seq for seq, *_ in rows], chunk)


def _parameters(query: Query) -> dict[str, Any]:
    return {
        "any_id": not query.ids,
        "ids": many(str(id) for id in query.ids),
        "status": query.status,
        "type": query.type,
        "key": query.key,
        "before": query.before,
        "since": text_of(query.since),
    }


def _record(*row: Any) -> Record:
    seq, status, attempts, lane, created, updated, owner, locked, due, settled, digest, code, error, parked = row[:14]
    return Record(
        seq=seq,
        status=status,
        attempts=attempts,
        lane=lane,
        created_at=created,
        updated_at=updated,
        message=message_of(*row[14:]),
        owner=owner,
        locked_at=locked,
        due_at=due,
        settled_at=settled,
        digest=digest,
        last_error_code=code,
        last_error=error,
        parked=bool(parked),
    )
