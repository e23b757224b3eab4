"""A lane where keys wait, or messages do: looked at step by step, as on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import inf

from postroom.stores.mysql.connection import Connection
from postroom.stores.mysql.parameters import many, text_of
from postroom.stores.mysql.settle import Verdicts
from postroom.stores.mysql.statements import Statements
from postroom.stores.selection import Choice, Seen, company, look, look_behind

WALK_MAX = 16_384
"""How far one claim walks along a line that is full of messages that have to wait."""


class CarefulClaim:
    """Each method runs inside the transaction it is given, under the lane's lock."""

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
