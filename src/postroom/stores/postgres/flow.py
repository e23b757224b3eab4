"""Messages on their way out: claim, settle, reconcile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from postroom.store import Claim, Claimed, Settled, Settlement, Verdict, per_lane
from postroom.stores._rows import message_of
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.lanes import arrays
from postroom.stores.postgres.statements import Statements
from postroom.stores.postgres.verdicts import Verdicts

WALK_MAX = 16_384
"""How far one look goes along a line that is full of messages that have to wait."""

_new = tuple.__new__
"""Makes a named tuple without its own __new__, which is Python and takes three times as long."""


class Flow:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements) -> None:
        self._run, self._rows = statements.run, statements.rows
        self._verdicts = Verdicts(statements)

    async def claim(
        self, connection: Connection, owner: str, lanes: Mapping[int, int], limit: int, now: datetime | None
    ) -> Sequence[Claim]:
        mine = await self._rows(connection, "lock_mine", owner=owner, now=now, **arrays(lanes))
        if not mine or limit < 1:
            return []
        at: datetime = mine[0][2]
        epochs = {lane: epoch for lane, epoch, *_ in mine}
        want = per_lane(limit, len(epochs))
        claims: list[Claim] = []
        reach = want
        while epochs and limit > 0:
            ceilings = await self._lift(connection, list(epochs), want, at)
            found, moved = await self._look(connection, owner, epochs, limit, want, reach, ceilings, at)
            claims += found
            limit -= sum(len(claim.messages) for claim in found)
            for claim in found:
                del epochs[claim.lane]
            if not moved and not ceilings.keys() & epochs.keys():
                break
            # The line was full of messages that have to wait; they are out of it now, so look further.
            reach = min(4 * reach, WALK_MAX)
        return sorted(claims, key=lambda claim: claim.lane)

    async def _lift(self, connection: Connection, lanes: Sequence[int], want: int, at: datetime) -> dict[int, int]:
        """Put what is due now back in the line; the ceiling of each lane where more is due than was lifted.

        Nothing behind the ceiling may go: it could be a later message of a key whose earlier one is still on the shelf.
        """
        lifted: dict[int, list[int]] = {}
        for lane, seq in await self._rows(connection, "lift_due", lanes=lanes, want=want, now=at):
            lifted.setdefault(lane, []).append(seq)
        return {lane: max(seqs) for lane, seqs in lifted.items() if len(seqs) == want}

    async def _look(
        self,
        connection: Connection,
        owner: str,
        epochs: Mapping[int, int],
        limit: int,
        want: int,
        reach: int,
        ceilings: Mapping[int, int],
        at: datetime,
    ) -> tuple[list[Claim], int]:
        """One look at the lines: what was claimed, and how many messages were taken out of the line."""
        rows = await self._rows(
            connection,
            "claim",
            owner=owner,
            limit=limit,
            want=want,
            reach=reach,
            now=at,
            capped=list(ceilings),
            ceilings=list(ceilings.values()),
            **arrays(epochs),
        )
        moved, freed = rows[0][:2]
        await self._verdicts.look_after(connection, freed or ())
        return _claims(owner, rows), moved

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

    async def reconcile(
        self, connection: Connection, owner: str, lanes: Mapping[int, int], held: Collection[int]
    ) -> int:
        dropped = await self._run(connection, "reconcile", owner=owner, held=list(held), **arrays(lanes))
        return dropped.rowcount


def _claims(owner: str, rows: Sequence[tuple[Any, ...]]) -> list[Claim]:
    """The claims in these rows, each of which has claim id, lane, epoch, solo, held, and then the message."""
    heads: dict[int, tuple[Any, ...]] = {}
    messages: defaultdict[int, list[Claimed]] = defaultdict(list)
    held: defaultdict[int, set[str]] = defaultdict(set)
    if rows[0][2] is None:  # nothing was chosen: the one row says only what was moved
        return []
    for row in rows:
        claim_id = row[2]
        claimed = _new(Claimed, (row[7], row[8], row[9], message_of(row[10:])))
        heads.setdefault(claim_id, row)
        messages[claim_id].append(claimed)
        if row[6] and claimed.message.key is not None:
            held[claim_id].add(claimed.message.key)
    return [
        Claim(claim_id, head[3], head[4], owner, head[5], sorted(messages[claim_id]), frozenset(held[claim_id]))
        for claim_id, head in heads.items()
    ]
