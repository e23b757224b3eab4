"""Messages on their way out: claim, settle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from postroom.contracts.outbox import Claim, Settled, Settlement, Verdict
from postroom.stores.postgres.claim import Claiming
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Statements


class OutboxFlow:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements) -> None:
        self._run, self._rows = statements.run, statements.rows
        self._verdicts = Verdicts(statements)
        self._claiming = Claiming(statements, self._verdicts)

    async def claim(
        self,
        connection: Connection,
        owner: str,
        lanes: Mapping[int, int],
        limit: int,
        now: datetime | None,
        doubtful: Collection[int] = (),
        alone: bool = False,
    ) -> Sequence[Claim]:
        return await self._claiming.claim(connection, owner, lanes, limit, now, doubtful, alone)

    async def settle(
        self, connection: Connection, settlements: Sequence[Settlement], now: datetime | None
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

    async def peek(self, connection: Connection, lanes: Collection[int], now: datetime | None) -> bool:
        ((found,),) = await self._rows(connection, "peek", lanes=list(lanes), now=now)
        return bool(found)
