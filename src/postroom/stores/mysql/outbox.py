"""Messages on their way out: put, claim, settle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Settlement
from postroom.handles.mysql import AsyncmyHandle
from postroom.message import Message
from postroom.stores.mysql.claim import Claiming
from postroom.stores.mysql.connections import Connection, Connections
from postroom.stores.mysql.lanes import numbers
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import Statements, listed, many
from postroom.stores.sql.outbox import SqlOutbox


class MySQLOutbox(SqlOutbox[Connection]):
    """See `postroom.contracts.outbox` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        verdicts = Verdicts(statements)
        super().__init__(connections, statements, verdicts, Claiming(statements, verdicts))
        self._publish = verdicts.publish

    async def watch(self, woken: Callable[[], None]) -> None:
        # These databases tell nobody of a commit: relays poll, and this only says that the watch stands.
        woken()
        await asyncio.Event().wait()

    async def _write(self, connection: Connection, messages: Sequence[Message], tables: TableNames) -> None:
        await AsyncmyHandle(connection).write(messages, tables)

    async def _fence(
        self, connection: Connection, settlements: Sequence[Settlement], whole: Collection[int], now: datetime | None
    ) -> set[int]:
        await self._lock_lanes_with_failures(connection, settlements)
        lanes = many({settlement.claim.lane for settlement in settlements})
        rows = await self._rows(
            connection, "flying", lanes=lanes, ids=many(settlement.claim.id for settlement in settlements)
        )
        if rows:
            await self._run(connection, "fence", listed=listed(lane for lane, *_ in rows))
        published = [seq for _, id, seqs in rows if id in whole for seq in numbers(seqs)]
        if published:
            await self._publish(connection, published, now)
        return {id for _, id, _ in rows}

    async def _lock_lanes_with_failures(self, connection: Connection, settlements: Sequence[Settlement]) -> None:
        """Where keys have to be looked after, no claim, take or requeue may do so at the same time: each would write down
        what it saw, and not what the other one did. Before the claims are locked, as a take does it."""
        lanes = {
            each.claim.lane for each in settlements if each.claim.held or (not each.is_published and each.stopped_keys)
        }
        if lanes:
            await self._run(connection, "lock_lanes", lanes=many(sorted(lanes)))
