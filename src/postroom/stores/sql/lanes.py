"""Who may send what: what every server is told of it in the same statements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.stores.selection import LostRow, after_a_crash
from postroom.stores.sql.parts import (
    AConnection,
    Connections,
    Part,
    Statements,
    Verdicts,
    in_transaction,
    single_statement,
)


class SqlLanes(Part[AConnection]):
    """The part of `postroom.contracts.lanes` that names the relays and the lanes; a database adds join, take, renew and
    release."""

    def __init__(
        self,
        connections: Connections[AConnection],
        statements: Statements[AConnection],
        verdicts: Verdicts[AConnection],
    ) -> None:
        super().__init__(connections, statements)
        self._verdicts = verdicts

    @in_transaction
    async def leave(self, connection: AConnection, owner: str) -> None:
        await self._run(connection, "leave", owner=owner)
        await self._wake(connection)

    @single_statement
    async def relays(self, connection: AConnection) -> Sequence[RelayInfo]:
        return [
            RelayInfo(owner=owner, name=name, host=host, pid=pid, version=version, process=process, seen_at=seen)
            for owner, name, host, pid, version, process, seen in await self._rows(connection, "relays")
        ]

    @single_statement
    async def all(self, connection: AConnection) -> Sequence[Lane]:
        return [Lane(*row) for row in await self._rows(connection, "lanes")]

    async def _count_lost(
        self,
        connection: AConnection,
        dropped: Sequence[tuple[Sequence[int], bool]],
        lost: OnLeaseLost,
        now: datetime | None,
    ) -> None:
        """Count an attempt for the messages of claims that were dropped (R6). Each claim is given as its seqs, and whether
        its message went alone."""
        seqs = [seq for claim, _ in dropped for seq in claim]
        if not seqs:
            return
        alone = {seq for claim, was_alone in dropped if was_alone for seq in claim}
        rows = [LostRow._make(row) for row in await self._rows(connection, "lost", seqs=self._many(seqs))]
        verdicts, keys = after_a_crash(rows, lost, alone)
        await self._verdicts.record(connection, verdicts, now, lost=True)
        await self._verdicts.look_after(connection, keys)
