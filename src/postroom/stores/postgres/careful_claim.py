"""The closer look: claiming from lanes where a wait is over, a message is not due yet, or one travels alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from postroom.contracts.outbox import Claim, Claimed
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.lanes import arrays
from postroom.stores.postgres.rows import Row, claimed_in
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Statements

REACH_MAX = 16_384
"""How far one look goes along a line that is full of messages that have to wait."""


class CarefulClaim:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements, verdicts: Verdicts) -> None:
        self._rows, self._verdicts = statements.rows, verdicts

    async def claim(
        self,
        connection: Connection,
        owner: str,
        lanes: Mapping[int, int],
        limit: int,
        want: int,
        at: datetime,
        alone: bool = False,
    ) -> list[Claim]:
        """Claim up to *limit* in these lanes, which are locked; at most *want* in each. What has to wait leaves the line."""
        claims: list[Claim] = []
        epochs, reach = dict(lanes), want
        while epochs and limit > 0:
            ceilings = await self._lift(connection, list(epochs), want, at)
            found, moved = await self._look(connection, owner, epochs, limit, want, reach, ceilings, at, alone)
            claims += found
            limit -= sum(len(claim.messages) for claim in found)
            for claim in found:
                del epochs[claim.lane]
            if not moved and not ceilings.keys() & epochs.keys():
                break
            # The line was full of messages that have to wait; they are out of it now, so look further.
            reach = min(4 * reach, REACH_MAX)
        return claims

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
        alone: bool,
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
            alone=alone,
            capped=list(ceilings),
            ceilings=list(ceilings.values()),
            **arrays(epochs),
        )
        freed = next((row[1] for row in rows if row[1]), ())
        await self._verdicts.look_after(connection, freed)
        return _claims(owner, rows), rows[0][0]


def _claims(owner: str, rows: Sequence[Row]) -> list[Claim]:
    """The claims in these rows, each of which has claim id, lane, epoch, lost, held, and then the message."""
    heads: dict[int, Row] = {}
    messages: defaultdict[int, list[Claimed]] = defaultdict(list)
    held: defaultdict[int, set[str]] = defaultdict(set)
    lost: defaultdict[int, int] = defaultdict(int)
    if rows[0][2] is None:  # nothing was chosen: the one row says only what was moved
        return []
    for row in rows:
        claim_id, claimed = row[2], claimed_in(row, 7)
        heads.setdefault(claim_id, row)
        messages[claim_id].append(claimed)
        lost[claim_id] = max(lost[claim_id], row[5])
        if row[6] and claimed.message.key is not None:
            held[claim_id].add(claimed.message.key)
    return [
        Claim(claim_id, head[3], head[4], owner, lost[claim_id], sorted(messages[claim_id]), frozenset(held[claim_id]))
        for claim_id, head in heads.items()
    ]
