"""Messages on their way out: put, claim, settle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Claim, Settled, Settlement, Verdict
from postroom.handles.mysql import AsyncmyHandle
from postroom.message import Message
from postroom.stores.mysql.claim import Claiming
from postroom.stores.mysql.connections import Connection, Connections
from postroom.stores.mysql.lanes import numbers
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import Part, Statements, in_transaction, listed, many, single_statement, text_of
from postroom.stores.transaction import OwnTransaction, handle_of


class MySQLOutbox(Part):
    """See `postroom.contracts.outbox` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements)
        self._verdicts = Verdicts(statements)
        self._claiming = Claiming(statements, self._verdicts)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[OwnTransaction]:
        async with self.connections.transaction() as connection, handle_of(partial(_write, connection)) as handle:
            yield handle

    @in_transaction
    async def put(self, connection: Connection, messages: Sequence[Message]) -> None:
        await _write(connection, messages, self.connections.tables)

    @in_transaction
    async def claim(
        self,
        connection: Connection,
        owner: str,
        lanes: Mapping[int, int],
        *,
        limit: int,
        doubtful: Collection[int] = (),
        alone: bool = False,
        now: datetime | None = None,
    ) -> Sequence[Claim]:
        return await self._claiming.claim(connection, owner, lanes, limit, now, doubtful, alone)

    @in_transaction
    async def settle(
        self, connection: Connection, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> Mapping[int, Settled]:
        await self._lock_lanes_with_failures(connection, settlements)
        fenced = await self._fence(connection, [settlement.claim for settlement in settlements])
        published: list[int] = []
        verdicts: dict[int, Verdict] = {}
        keys: set[str] = set()
        answers: dict[int, Settled] = {}
        for settlement in settlements:
            claim = settlement.claim
            if claim.id not in fenced:
                answers[claim.id] = await self._why(connection, claim)
                continue
            answers[claim.id] = "settled"
            keys |= claim.held
            if settlement.is_published:
                published += fenced[claim.id]
            else:
                verdicts |= settlement.own_verdicts
                keys |= settlement.stopped_keys
        if published:
            await self._verdicts.publish(connection, published, now)
        await self._verdicts.record(connection, verdicts, now)
        await self._verdicts.look_after(connection, keys)
        return answers

    async def _lock_lanes_with_failures(self, connection: Connection, settlements: Sequence[Settlement]) -> None:
        """Where keys have to be looked after, no claim, take or requeue may do so at the same time: each would write down
        what it saw, and not what the other one did. Before the claims are locked, as a take does it."""
        lanes = {
            each.claim.lane for each in settlements if each.claim.held or (not each.is_published and each.stopped_keys)
        }
        if lanes:
            await self._run(connection, "lock_lanes", lanes=many(sorted(lanes)))

    async def _fence(self, connection: Connection, claims: Sequence[Claim]) -> dict[int, list[int]]:
        """Delete these claims; which of them were there, with their seqs (R20)."""
        lanes, ids = many({claim.lane for claim in claims}), many(claim.id for claim in claims)
        rows = await self._rows(connection, "flying", lanes=lanes, ids=ids)
        if rows:
            await self._run(connection, "fence", listed=listed(lane for lane, *_ in rows))
        return {id: numbers(seqs) for _, id, seqs in rows}

    async def _why(self, connection: Connection, claim: Claim) -> Settled:
        mine = await self._rows(connection, "is_mine", lane=claim.lane, epoch=claim.epoch)
        return "already" if mine else "lost"

    @single_statement
    async def peek(self, connection: Connection, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        ((found,),) = await self._rows(connection, "peek", lanes=many(lanes), now=text_of(now))
        return bool(found)

    async def watch(self, woken: Callable[[], None]) -> None:
        # These databases tell nobody of a commit: relays poll, and this only says that the watch stands.
        woken()
        await asyncio.Event().wait()


async def _write(connection: Connection, messages: Sequence[Message], tables: TableNames) -> None:
    await AsyncmyHandle(connection).write(messages, tables)
