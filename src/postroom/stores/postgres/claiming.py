"""Claiming: the lanes where nothing waits in one pass, the others by a closer look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeAlias

from postroom.store import Claim, Claimed, per_lane
from postroom.stores._choose import fair
from postroom.stores._rows import message_of
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.lanes import arrays
from postroom.stores.postgres.statements import Statements
from postroom.stores.postgres.verdicts import Verdicts

WALK_MAX = 16_384
"""How far one look goes along a line that is full of messages that have to wait."""
Row: TypeAlias = tuple[Any, ...]

_seq, _odd = itemgetter(2), itemgetter(3)
_new = tuple.__new__
"""Makes a named tuple without its own __new__, which is Python and takes three times as long."""


class Claiming:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements, verdicts: Verdicts) -> None:
        self._rows, self._verdicts = statements.rows, verdicts

    async def claim(
        self, connection: Connection, owner: str, lanes: Mapping[int, int], limit: int, now: datetime | None
    ) -> Sequence[Claim]:
        mine = await self._rows(connection, "lock_mine", owner=owner, now=now, **arrays(lanes))
        if not mine or limit < 1:
            return []
        at: datetime = mine[0][2]
        epochs = {lane: epoch for lane, epoch, *_ in mine}
        want = per_lane(limit, len(epochs))
        claims = await self._claim_plain(connection, owner, epochs, limit, want, at)
        limit -= sum(len(claim.messages) for claim in claims)
        return sorted(
            [*claims, *await self._claim_rest(connection, owner, epochs, limit, want, at)],
            key=lambda claim: claim.lane,
        )

    async def _claim_plain(
        self, connection: Connection, owner: str, epochs: dict[int, int], limit: int, want: int, at: datetime
    ) -> list[Claim]:
        """Claim from the lanes where nothing waits, which is nearly always all of them; what is left in *epochs* wants a
        closer look."""
        lines: defaultdict[int, list[Row]] = defaultdict(list)
        for row in await self._rows(connection, "line", lanes=list(epochs), want=want, now=at):
            lines[row[0]].append(row)
        plain = {lane: line for lane, line in lines.items() if line[0][1] and True not in map(_odd, line)}
        odd = lines.keys() - plain.keys()
        full = {lane: sorted(line, key=_seq) for lane, line in plain.items() if line[0][2] is not None}
        if sum(map(len, full.values())) + len(odd) * want > limit:
            if odd:
                # Which ones go is for one look at all lanes to say.
                return []
            full = fair(full, limit)
        claims = await self._claim_lines(connection, owner, {lane: epochs[lane] for lane in full}, full, at)
        for lane in epochs.keys() - odd:
            del epochs[lane]
        return claims

    async def _claim_lines(
        self,
        connection: Connection,
        owner: str,
        epochs: Mapping[int, int],
        lines: Mapping[int, Sequence[Row]],
        at: datetime,
    ) -> list[Claim]:
        if not lines:
            return []
        seqs = ["{" + ",".join(map(str, map(_seq, lines[lane]))) + "}" for lane in epochs]
        ids = dict(await self._rows(connection, "claim_line", owner=owner, seqs=seqs, now=at, **arrays(epochs)))
        return [
            Claim(ids[lane], lane, epochs[lane], owner, False, [_claimed(row, 2, 4) for row in line])
            for lane, line in lines.items()
        ]

    async def _claim_rest(
        self, connection: Connection, owner: str, epochs: dict[int, int], limit: int, want: int, at: datetime
    ) -> list[Claim]:
        """Claim from lanes where keys wait, or messages do."""
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


def _claims(owner: str, rows: Sequence[Row]) -> list[Claim]:
    """The claims in these rows, each of which has claim id, lane, epoch, solo, held, and then the message."""
    heads: dict[int, Row] = {}
    messages: defaultdict[int, list[Claimed]] = defaultdict(list)
    held: defaultdict[int, set[str]] = defaultdict(set)
    if rows[0][2] is None:  # nothing was chosen: the one row says only what was moved
        return []
    for row in rows:
        claim_id, claimed = row[2], _claimed(row, 7, 8)
        heads.setdefault(claim_id, row)
        messages[claim_id].append(claimed)
        if row[6] and claimed.message.key is not None:
            held[claim_id].add(claimed.message.key)
    return [
        Claim(claim_id, head[3], head[4], owner, head[5], sorted(messages[claim_id]), frozenset(held[claim_id]))
        for claim_id, head in heads.items()
    ]


def _claimed(row: Row, seq: int, attempts: int) -> Claimed:
    """Out of a row with the seq and the attempts at these places, then whether it expired, and the message."""
    return _new(Claimed, (row[seq], row[attempts], row[attempts + 1], message_of(*row[attempts + 2 :])))
