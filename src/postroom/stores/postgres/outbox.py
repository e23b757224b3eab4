"""Messages on their way out: put, claim, settle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Claim, Settled, Settlement, Verdict
from postroom.handles.psycopg import AsyncPsycopgHandle
from postroom.message import Message
from postroom.stores.connections import OwnTransaction, handle_of
from postroom.stores.postgres.claim import Claiming
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Part, Statements, in_transaction, single_statement
from postroom.stores.postgres.watch import watch


class PostgresOutbox(Part):
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
        whole = [settlement.claim.id for settlement in settlements if settlement.is_published]
        ids = [settlement.claim.id for settlement in settlements]
        fenced = {claim_id for (claim_id,) in await self._rows(connection, "fence", ids=ids, whole=whole, now=now)}
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
            if claim.id not in whole:
                verdicts |= settlement.own_verdicts
                keys |= settlement.stopped_keys
        await self._verdicts.record(connection, verdicts, now)
        await self._verdicts.look_after(connection, keys)
        return answers

    async def _why(self, connection: Connection, claim: Claim) -> Settled:
        mine = await self._rows(connection, "is_mine", lane=claim.lane, epoch=claim.epoch)
        return "already" if mine else "lost"

    @single_statement
    async def peek(self, connection: Connection, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        ((found,),) = await self._rows(connection, "peek", lanes=list(lanes), now=now)
        return bool(found)

    async def watch(self, woken: Callable[[], None]) -> None:
        await watch(self.connections.url, self.connections.tables, woken)


async def _write(connection: Connection, messages: Sequence[Message], tables: TableNames) -> None:
    await AsyncPsycopgHandle(connection).write(messages, tables)
