"""Claiming: the lanes where nothing waits in one pass, the others by a closer look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from math import inf
from operator import itemgetter
from typing import Any, TypeAlias

from postroom.contracts.outbox import Claim, Claimed, per_lane
from postroom.stores.mysql.connections import Connection
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import Statements, listed, many, pairs, text_of
from postroom.stores.rows import message_of
from postroom.stores.selection import Choice, Seen, company, fair, look, look_behind

Row: TypeAlias = tuple[Any, ...]

WALK_MAX = 16_384
"""How far one claim walks along a line that is full of messages that have to wait."""

_seq, _odd = itemgetter(1), itemgetter(2)
_new = tuple.__new__
"""Makes a named tuple without its own __new__, which is Python and takes three times as long."""


class Claiming:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements, verdicts: Verdicts) -> None:
        self._run, self._rows = statements.run, statements.rows
        self._run_many, self._each = statements.run_many, statements.each
        self._closer = CarefulClaim(statements, verdicts)

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
        held = pairs(lanes)
        mine = await self._rows(connection, "mine", owner=owner, lanes=many(lanes), held=held, now=text_of(now))
        if orphaned := {lane for lane, *_ in mine} & set(doubtful):
            await self._run(connection, "drop_orphans", listed=listed(sorted(orphaned)))
        if not mine or limit < 1:
            return []
        at: datetime = mine[0][2]
        free = await self._rows(connection, "free_lanes", lanes=many(lane for lane, *_ in mine), now=text_of(at))
        want = per_lane(limit, len(free))
        lines = await self._plain(connection, [lane for lane, plain in free if plain], want, at)
        looked = {lane: await self._closer.line(connection, lane, want, at) for lane, _ in free if lane not in lines}
        seqs = {lane: list(map(_seq, line)) for lane, line in lines.items() if line}
        seqs |= {lane: [seen.seq for seen in line] for lane, (line, _) in looked.items() if line}
        chosen = fair(seqs, limit)
        ids = await self._insert(connection, owner, lanes, chosen, at, alone)
        messages = await self._messages(connection, chosen, lines, at)
        return [
            Claim(ids[lane], lane, lanes[lane], owner, *_of_the_look(looked.get(lane), messages[lane]))
            for lane in chosen
        ]

    async def _plain(
        self, connection: Connection, lanes: Sequence[int], want: int, at: datetime
    ) -> dict[int, Sequence[Row]]:
        """What stands first in the lines of these lanes, whole; without the lanes that want a closer look."""
        if not lanes:
            return {}
        lines: defaultdict[int, list[Row]] = defaultdict(list)
        each = self._each("one_line", [{"lane": lane, "want": want} for lane in lanes])
        for row in await self._rows(connection, "line", lines=each, now=text_of(at)):
            lines[row[0]].append(row)
        return {lane: sorted(lines[lane], key=_seq) for lane in lanes if not any(map(_odd, lines[lane]))}

    async def _insert(
        self,
        connection: Connection,
        owner: str,
        epochs: Mapping[int, int],
        chosen: Mapping[int, Sequence[int]],
        at: datetime,
        alone: bool,
    ) -> dict[int, int]:
        """A claim for each lane; its id, by lane."""
        if not chosen:
            return {}
        claims = [
            {"lane": lane, "epoch": epochs[lane], "seqs": ",".join(map(str, seqs))}
            | {"owner": owner, "now": text_of(at), "alone": alone}
            for lane, seqs in chosen.items()
        ]
        await self._run_many(connection, "claim", claims)
        # Asked, and not counted on from the first: a cluster leaves gaps between them.
        return dict(await self._rows(connection, "claim_ids", lanes=many(chosen)))

    async def _messages(
        self,
        connection: Connection,
        chosen: Mapping[int, Sequence[int]],
        lines: Mapping[int, Sequence[Row]],
        at: datetime,
    ) -> Mapping[int, list[Claimed]]:
        """The messages that were chosen, by lane. Those of plain lanes were read with the line."""
        found = {
            lane: [_claimed(row) for row in lines[lane][: len(seqs)]] for lane, seqs in chosen.items() if lane in lines
        }
        if missing := [seq for lane, seqs in chosen.items() if lane not in lines for seq in seqs]:
            for row in await self._rows(connection, "claimed", seqs=many(missing), now=text_of(at)):
                found.setdefault(row[0], []).append(_claimed(row))
        return found


def _of_the_look(looked: Any, messages: list[Claimed]) -> tuple[int, list[Claimed], frozenset[str]]:
    """The rest of a claim: how often one of it was lost, its messages, and which of its keys come out of a wait."""
    if looked is None:
        return 0, messages, frozenset()
    line, freed = looked
    keys = frozenset(one.message.key for one in messages if one.message.key is not None and one.message.key in freed)
    return max(seen.lost for seen in line[: len(messages)]), messages, keys


def _claimed(row: Row) -> Claimed:
    return _new(Claimed, (row[1], row[3], row[4] == 1, message_of(*row[5:])))


# ── the closer look ───────────────────────────────────────────────────────────────────────────────────────────────────


class CarefulClaim:
    """A lane where keys wait, or messages do: looked at step by step, as on SQLite. Each method runs inside the transaction it
    is given, under the lane's lock."""

    def __init__(self, statements: Statements, verdicts: Verdicts) -> None:
        self._run, self._rows = statements.run, statements.rows
        self._verdicts = verdicts

    async def line(
        self, connection: Connection, lane: int, want: int, now: datetime
    ) -> tuple[Sequence[Seen], set[str]]:
        """What may go in this lane, and which of its keys come out of a wait."""
        at = text_of(now) or ""
        freed: set[str] = set()
        while True:
            ceiling = await self._lift(connection, lane, want, at)
            choice = await self._walk(connection, lane, want, at)
            moved, keys = await self._look_behind(connection, lane, want, at, choice)
            freed |= keys
            line = company(sorted(seen for seen in choice.ready if seen.seq <= ceiling))
            if line or (not moved and ceiling == inf):
                return line, freed

    async def _lift(self, connection: Connection, lane: int, want: int, at: str) -> float:
        """Put what is due now back in the line. When more is due than was lifted, nothing behind the last one may go:
        it could be a later message of a key whose earlier one is still on the shelf."""
        due = [seq for (seq,) in await self._rows(connection, "due", lane=lane, now=at, limit=want)]
        if due:
            await self._run(connection, "lift_due", seqs=many(due))
        return max(due) if len(due) == want else inf

    async def _walk(self, connection: Connection, lane: int, want: int, at: str) -> Choice:
        """Along the line until enough may go, taking out what has to wait: the next walk does not meet it again."""
        reach = 2 * want
        while True:
            rows = await self._rows(connection, "walk", lane=lane, now=at, limit=reach)
            line = [Seen._make(row) for row in rows]
            choice = Choice()
            look(line, choice)
            waiting = len(choice.behind) + len(choice.later)
            await self._shelve(connection, choice)
            if not waiting or len(choice.ready) >= want or len(line) < reach:
                return choice
            reach = min(4 * reach, WALK_MAX)

    async def _look_behind(
        self, connection: Connection, lane: int, want: int, at: str, choice: Choice
    ) -> tuple[int, set[str]]:
        """Add what waited behind keys whose time has come; how many turned out to be for later, and which keys."""
        keys = {key for (key,) in await self._rows(connection, "due_holds", lane=lane, now=at, limit=want)}
        for key in sorted(keys):
            waiting = await self._rows(connection, "behind", key=key, now=at, limit=want)
            look_behind(map(Seen._make, waiting), choice)
        moved = len(choice.later)
        await self._shelve(connection, choice)
        await self._verdicts.look_after(connection, keys)
        return moved, keys

    async def _shelve(self, connection: Connection, choice: Choice) -> None:
        for shelf, seqs in (("key", choice.behind), ("time", choice.later)):
            if seqs:
                await self._run(connection, "shelve", shelf=shelf, seqs=many(seqs))
        choice.behind, choice.later = [], []
