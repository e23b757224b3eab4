"""Who may send what: take, renew, release."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.stores.mysql.connections import Connection, Connections
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import Statements, listed, many, pairs, text_of
from postroom.stores.sql.lanes import SqlLanes
from postroom.stores.sql.parts import in_transaction
from postroom.stores.sql.times import MICROSECOND


class MySQLLanes(SqlLanes[Connection]):
    """See `postroom.contracts.lanes` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements, Verdicts(statements))

    @in_transaction
    async def join(self, connection: Connection, relay: RelayInfo, *, now: datetime | None = None) -> None:
        await self._run(
            connection,
            "join",
            owner=relay.owner,
            name=relay.name,
            host=relay.host,
            pid=relay.pid,
            version=relay.version,
            process=relay.process,
            now=text_of(now),
        )

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
        rows = await self._rows(connection, "free", limit=limit, gone=json.dumps(list(gone)), now=text_of(now))
        free = [lane for (lane,) in rows]
        if not free:
            return []
        lanes = many(free)
        await self._run(connection, "take", owner=owner, lanes=lanes, lease=lease // MICROSECOND, now=text_of(now))
        await self._let_go(connection, lanes, lost, now)
        return [Lane(*row) for row in await self._rows(connection, "taken", lanes=lanes)]

    async def _let_go(
        self, connection: Connection, lanes: tuple[int, ...], lost: OnLeaseLost, now: datetime | None
    ) -> None:
        """Count an attempt for what an earlier owner had in flight here, and drop its claim (R6)."""
        dropped = await self._rows(connection, "in_flight", lanes=lanes)
        if not dropped:
            return
        await self._run(connection, "let_go", listed=listed(lanes))
        await self._count_lost(connection, [(numbers(claim), alone) for claim, alone in dropped], lost, now)

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
        mine = await self._mine(connection, owner, lanes, now)
        if mine:
            await self._run(connection, "renew", lanes=many(mine), lease=lease // MICROSECOND, now=text_of(now))
        return frozenset(mine)

    @in_transaction
    async def release(self, connection: Connection, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        mine = await self._mine(connection, owner, lanes, None)
        idle = [lane for (lane,) in await self._rows(connection, "idle", lanes=many(mine))]
        if idle:
            await self._run(connection, "release", lanes=many(idle))
        return frozenset(idle)

    async def _mine(
        self, connection: Connection, owner: str, lanes: Mapping[int, int], now: datetime | None
    ) -> Sequence[int]:
        rows = await self._rows(connection, "mine", owner=owner, lanes=many(lanes), held=pairs(lanes), now=text_of(now))
        return [lane for lane, *_ in rows]


def numbers(text: str) -> list[int]:
    """The seqs of a claim.

    >>> numbers("3,5")
    [3, 5]
    """
    return [int(number) for number in text.split(",")]
