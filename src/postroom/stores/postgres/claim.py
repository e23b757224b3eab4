"""Claiming: lanes where nothing waits in one pass, those with waiting keys past them, the others by a closer look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from postroom.contracts.outbox import Claim, Claimed, per_lane
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.lanes import arrays
from postroom.stores.postgres.settle import Verdicts
from postroom.stores.postgres.statements import Statements
from postroom.stores.rows import message_of
from postroom.stores.selection import fair

Row: TypeAlias = tuple[Any, ...]

WALK_MAX = 131_072
"""How far a claim walks past the messages of waiting keys: about a tenth of a second."""
SHELVED_PART = 16
"""The sixteenth part of a long walk is taken out of the line: to take one out costs as much as to walk past it some ten
times."""

REACH_MAX = 16_384
"""How far one look goes along a line that is full of messages that have to wait."""

_odd, _seq, _lane = itemgetter(2), itemgetter(3), attrgetter("lane")


_new = tuple.__new__
"""Makes a named tuple without its own __new__, which is Python and takes three times as long."""


class Claiming:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements, verdicts: Verdicts) -> None:
        self._run, self._rows = statements.run, statements.rows
        self._closer_look = CarefulClaim(statements, verdicts)

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
        mine = await self._rows(connection, "lock_mine", owner=owner, now=now, **arrays(lanes))
        epochs = {lane: epoch for lane, epoch, *_ in mine}
        if orphaned := epochs.keys() & set(doubtful):
            await self._run(connection, "drop_orphans", lanes=sorted(orphaned))
        if not mine or limit < 1:
            return []
        at: datetime = mine[0][2]
        want = per_lane(limit, len(epochs))
        lines, odd = _sorted_out(await self._rows(connection, "line", lanes=list(epochs), want=want, now=at))
        walked: dict[int, list[Row]] = {}
        # A long way is better gone once: what is found at its end may fill half of the claim.
        far = max(want, limit // 2 // max(len(odd), 1))
        if odd:
            walked, odd = await self._walk(connection, odd, far, at)
        if odd and sum(map(len, [*lines.values(), *walked.values()])) + len(odd) * want > limit:
            # Which ones go is for one look at all lanes to say.
            return sorted(await self._closer_look.claim(connection, owner, epochs, limit, want, at, alone), key=_lane)
        seqs = _shared_out(_seqs(lines), _seqs(walked), limit)
        held = {lane: epochs[lane] for lane in seqs}
        claims = await self._claim_lines(connection, owner, held, seqs, lines, at, alone) if seqs else []
        claims = [
            replace(claim, emptied=len(claim.messages) < far) if claim.lane in walked else claim for claim in claims
        ]
        left, rest = limit - sum(map(len, seqs.values())), {lane: epochs[lane] for lane in odd}
        claims += await self._closer_look.claim(connection, owner, rest, left, want, at, alone)
        return sorted(claims, key=_lane)

    async def _walk(
        self, connection: Connection, lanes: set[int], want: int, at: datetime
    ) -> tuple[dict[int, list[Row]], set[int]]:
        """What may go in lanes where keys wait; and the lanes that want a closer look. A part of what was walked past is
        taken out of the line, so that it is not walked past forever."""
        rows = await self._rows(connection, "walk_past", lanes=sorted(lanes), want=want, reach=WALK_MAX, now=at)
        walked, odd = _sorted_out(rows)
        for lane, line in walked.items():
            far = line[-1][4] if line else WALK_MAX
            if far > 4 * want:
                await self._run(connection, "shelve_held", lanes=[lane], reach=far // SHELVED_PART, now=at)
        return walked, odd

    async def _claim_lines(
        self,
        connection: Connection,
        owner: str,
        epochs: Mapping[int, int],
        seqs: Mapping[int, Sequence[int]],
        lines: Mapping[int, Sequence[Row]],
        at: datetime,
        alone: bool,
    ) -> list[Claim]:
        """Claim these messages, which *lines* holds whole; those of other lanes are read."""
        texts = ["{" + ",".join(map(str, seqs[lane])) + "}" for lane in epochs]
        made = {"owner": owner, "seqs": texts, "now": at, "alone": alone, **arrays(epochs)}
        ids = dict(await self._rows(connection, "claim_line", **made))
        messages: dict[int, list[Claimed]] = defaultdict(list)
        if to_read := [seq for lane in epochs if lane not in lines for seq in seqs[lane]]:
            for row in await self._rows(connection, "claimed", seqs=to_read, now=at):
                messages[row[0]].append(_claimed_in(row, 1))
        for lane in epochs.keys() & lines.keys():
            messages[lane] = [_claimed_in(row, 3) for row in lines[lane][: len(seqs[lane])]]
        return [Claim(ids[lane], lane, epochs[lane], owner, 0, sorted(messages[lane])) for lane in epochs]


def _seqs(lines: Mapping[int, Sequence[Row]]) -> dict[int, list[int]]:
    return {lane: list(map(_seq, line)) for lane, line in lines.items() if line}


def _shared_out(lines: Mapping[int, list[int]], walked: Mapping[int, list[int]], limit: int) -> dict[int, list[int]]:
    """At most *limit* of these: what was walked for goes, up to the half; else the first of every lane before the second.

    >>> _shared_out({1: [10, 11]}, {2: [20, 21]}, 4), _shared_out({1: [10, 11]}, {2: [20, 21]}, 3)
    ({1: [10, 11], 2: [20, 21]}, {1: [10, 11], 2: [20]})
    >>> _shared_out({1: [10, 11], 3: [30, 31]}, {2: [20, 21]}, 4)
    {1: [10], 3: [30], 2: [20, 21]}
    """
    far = sum(map(len, walked.values()))
    if far + sum(map(len, lines.values())) <= limit:
        return {**lines, **walked}
    return {**fair(lines, limit - far), **walked} if far <= limit // 2 else fair({**lines, **walked}, limit)


def _sorted_out(rows: Sequence[Row]) -> tuple[dict[int, list[Row]], set[int]]:
    """The lines in these rows, by lane, each in order; and the lanes that are not plain, of which nothing is used."""
    lines: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        lines[row[0]].append(row)
    odd = {lane for lane, line in lines.items() if not line[0][1] or True in map(_odd, line)}
    return {
        lane: sorted(line, key=_seq) if line[0][3] is not None else []
        for lane, line in lines.items()
        if lane not in odd
    }, odd


def _claimed_in(row: Row, seq: int) -> Claimed:
    """The message in a row, with its seq at this place; then come the attempts, whether it expired, and the columns."""
    return _new(Claimed, (row[seq], row[seq + 1], row[seq + 2], message_of(*row[seq + 3 :])))


# ── the closer look ──


class CarefulClaim:
    """Claims from lanes where a wait is over, a message is not due yet, or one travels alone.

    Each method runs inside the transaction it is given."""

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
        claim_id, claimed = row[2], _claimed_in(row, 7)
        heads.setdefault(claim_id, row)
        messages[claim_id].append(claimed)
        lost[claim_id] = max(lost[claim_id], row[5])
        if row[6] and claimed.message.key is not None:
            held[claim_id].add(claimed.message.key)
    return [
        Claim(claim_id, head[3], head[4], owner, lost[claim_id], sorted(messages[claim_id]), frozenset(held[claim_id]))
        for claim_id, head in heads.items()
    ]
