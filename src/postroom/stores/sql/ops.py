"""What a person does to the messages: what every server is told of it in the same statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

from postroom.contracts.ops import Progress, Query, Status
from postroom.stores.chunks import Chunk, Done, end_of, in_chunks
from postroom.stores.sql.parts import (
    AConnection,
    Connections,
    Part,
    Statements,
    Verdicts,
    in_transaction,
    single_statement,
)


class SqlOps(Part[AConnection], ABC):
    """The part of `postroom.contracts.ops` that every server does alike; a database adds counts, find and ids_between."""

    def __init__(
        self,
        connections: Connections[AConnection],
        statements: Statements[AConnection],
        verdicts: Verdicts[AConnection],
    ) -> None:
        super().__init__(connections, statements)
        self._verdicts = verdicts

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._requeue(query, chunk), told)

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._discard(query, chunk, now), told)

    @single_statement
    async def _top(self, connection: AConnection) -> int:
        """The last seq that there is."""
        ((top,),) = await self._rows(connection, "top")
        return int(top)

    @in_transaction
    async def _requeue(self, connection: AConnection, query: Query, chunk: Chunk) -> Done:
        found, last = await self._alone_with(connection, query, chunk, "dead", "failed")
        await self._run(connection, "requeue", seqs=self._many(found))
        await self._verdicts.look_after(connection, {key for key in found.values() if key is not None})
        await self._wake(connection)
        return Done(len(found), last)

    @in_transaction
    async def _discard(self, connection: AConnection, query: Query, chunk: Chunk, now: datetime | None) -> Done:
        found, last = await self._alone_with(connection, query, chunk, "dead", "failed", "pending")
        await self._run(connection, "discard", seqs=self._many(found), now=self._at(now))
        await self._verdicts.look_after(connection, {key for key in found.values() if key is not None})
        await self._wake(connection)
        return Done(len(found), last)

    async def _alone_with(
        self, connection: AConnection, query: Query, chunk: Chunk, *statuses: Status
    ) -> tuple[dict[int, str | None], int | None]:
        """The messages that match, in one of these statuses, with no claim possible until this transaction ends; and where
        the next chunk begins."""
        facts = self._parameters(query) | {"after": chunk.after, "top": chunk.top, "size": chunk.size}
        among = self._many(statuses)
        rows = await self._rows(connection, "matching", **facts, statuses=among)
        await self._run(connection, "lock_lanes", lanes=self._many(sorted({lane for _, lane, _ in rows})))
        still = await self._rows(connection, "still", seqs=self._many(seq for seq, *_ in rows), statuses=among)
        return dict(still), end_of([seq for seq, *_ in rows], chunk)

    @abstractmethod
    def _parameters(self, query: Query) -> dict[str, Any]:
        """Return a query as the statements take it."""
