"""Messages on their way out: claim, settle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from postroom.contracts.outbox import Claim, Settled, Settlement, Verdict
from postroom.stores.mysql.claim import Claiming
from postroom.stores.mysql.connection import Connection
from postroom.stores.mysql.lanes import numbers
from postroom.stores.mysql.parameters import listed, many, text_of
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import Statements


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

    async def peek(self, connection: Connection, lanes: Collection[int], now: datetime | None) -> bool:
        ((found,),) = await self._rows(connection, "peek", lanes=many(lanes), now=text_of(now))
        return bool(found)
