"""Who may send what: take, renew, release."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Statements
from postroom.stores.sql.lanes import SqlLanes
from postroom.stores.sql.parts import in_transaction


class PostgresLanes(SqlLanes[Connection]):
    """See `postroom.contracts.lanes` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements, Verdicts(statements))

    @in_transaction
    async def join(self, connection: Connection, relay: RelayInfo, *, now: datetime | None = None) -> None:
        ((is_new,),) = await self._rows(
            connection,
            "join",
            owner=relay.owner,
            name=relay.name,
            host=relay.host,
            pid=relay.pid,
            version=relay.version,
            process=relay.process,
            now=now,
        )
        if is_new:
            await self._wake(connection)

    @in_transaction
    async def take(
        self,
        connection: Connection,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        lost: OnLeaseLost,
        gone: Collection[str] = (),
        now: datetime | None = None,
    ) -> Sequence[Lane]:
        rows = await self._rows(connection, "take", owner=owner, limit=limit, lease=lease, gone=list(gone), now=now)
        if rows:
            await self._let_go(connection, [lane for lane, *_ in rows], lost, now)
        return sorted((Lane(*row) for row in rows), key=lambda lane: lane.lane)

    async def _let_go(
        self, connection: Connection, lanes: Sequence[int], lost: OnLeaseLost, now: datetime | None
    ) -> None:
        """Count an attempt for what an earlier owner had in flight here, and drop its claim (R6)."""
        await self._count_lost(connection, await self._rows(connection, "let_go", lanes=lanes), lost, now)

    @in_transaction
    async def renew(
        self,
        connection: Connection,
        owner: str,
        lanes: Mapping[int, int],
        *,
        lease: timedelta,
        now: datetime | None = None,
    ) -> frozenset[int]:
        rows = await self._rows(connection, "renew", owner=owner, lease=lease, now=now, **arrays(lanes))
        return frozenset(lane for (lane,) in rows)

    @in_transaction
    async def release(self, connection: Connection, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        rows = await self._rows(connection, "release", owner=owner, **arrays(lanes))
        await self._wake(connection)
        return frozenset(lane for (lane,) in rows)


def arrays(lanes: Mapping[int, int]) -> dict[str, list[int]]:
    """Lanes and their epochs, as two parameters."""
    return {"lanes": list(lanes), "epochs": list(lanes.values())}
