"""A closer look at a lane where something waits: keys, or messages before their time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import inf

from postroom.stores.mongo.collections import OPEN, Collections, Part, among
from postroom.stores.mongo.connections import Document, Session
from postroom.stores.mongo.rows import LOOK, seen_in
from postroom.stores.mongo.settle import Holds
from postroom.stores.selection import Choice, Seen, company, look, look_behind

WALK_MAX = 16_384
"""How far one claim walks along a line that is full of messages that have to wait."""


class CarefulClaim(Part):
    """Each method runs inside the transaction it is given."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._holds = Holds(collections)

    async def line(
        self, session: Session, lane: int, want: int, at: datetime, *, due: bool, freed: bool
    ) -> tuple[Sequence[Seen], set[str]]:
        """What may go in this lane, and which of its keys come out of a wait. *due* says that a message became due somewhere,
        *freed* that the wait of a key is over."""
        keys: set[str] = set()
        while True:
            ceiling = await self._lift(session, lane, want, at) if due else inf
            choice = await self._walk(session, lane, want, at)
            moved, over = await self._look_behind(session, lane, want, at, choice) if freed else (0, set())
            keys |= over
            line = company(sorted(seen for seen in choice.ready if seen.seq <= ceiling))
            if line or (not moved and ceiling == inf):
                return line, keys

    async def _lift(self, session: Session, lane: int, want: int, at: datetime) -> float:
        """Put what is due now back in the line. When more is due than was lifted, nothing behind the last one may go:
        it could be a later message of a key whose earlier one is not back yet."""
        due = {"later": lane, "due_at": {"$lte": at}}
        found = self.collections.outbox.find(due, {"_id": 0, "seq": 1}, session=session, sort=[("seq", 1)], limit=want)
        lifted = [each["seq"] async for each in found]
        if lifted:
            back = {"$set": {"line": lane}, "$unset": {"later": ""}}
            await self.collections.outbox.update_many({"seq": among(lifted)}, back, session=session)
        return max(lifted) if len(lifted) == want else inf

    async def _walk(self, session: Session, lane: int, want: int, at: datetime) -> Choice:
        """Along the line until enough may go, taking out what has to wait: the next walk does not meet it again."""
        reach = 2 * want
        while True:
            found = self.collections.outbox.find(
                {"line": lane, **OPEN}, LOOK, session=session, sort=[("seq", 1)], limit=reach
            )
            line = await self._seen(session, await found.to_list(), at)
            choice = Choice()
            look(line, choice)
            waiting = len(choice.behind) + len(choice.later)
            await self._put_aside(session, lane, choice)
            if not waiting or len(choice.ready) >= want or len(line) < reach:
                return choice
            reach = min(4 * reach, WALK_MAX)

    async def _seen(self, session: Session, found: Sequence[Document], at: datetime) -> list[Seen]:
        held = await self.held(session, found)
        return [seen_in(each, at, held) for each in found]

    async def held(self, session: Session, found: Sequence[Document]) -> set[str]:
        """Of the keys of these messages, those that wait."""
        keys = {key for each in found if (key := each.get("key")) is not None}
        if not keys:
            return set()
        return {
            each["_id"] async for each in self.collections.hold.find({"_id": among(keys)}, {"_id": 1}, session=session)
        }

    async def _look_behind(
        self, session: Session, lane: int, want: int, at: datetime, choice: Choice
    ) -> tuple[int, set[str]]:
        """Add what waited behind keys whose time has come; how many turned out to be for later, and which keys."""
        over = {"lane": lane, "until": {"$lte": at}}
        holds = self.collections.hold.find(over, {"_id": 1}, session=session, sort=[("until", 1)], limit=want)
        keys = {each["_id"] async for each in holds}
        for key in keys:
            found = self.collections.outbox.find({"behind": key}, LOOK, session=session, sort=[("seq", 1)], limit=want)
            waiting = [seen_in(each, at, ()) async for each in found]
            look_behind(waiting, choice)
        moved = len(choice.later)
        await self._put_aside(session, lane, choice)
        await self._holds.look_after(session, keys)
        return moved, keys

    async def _put_aside(self, session: Session, lane: int, choice: Choice) -> None:
        """Out of the line: behind its key's head, or until it is due."""
        outbox = self.collections.outbox
        if choice.later:
            aside = {"$set": {"later": lane}, "$unset": {"line": "", "behind": ""}}
            await outbox.update_many({"seq": among(choice.later)}, aside, session=session)
        if choice.behind:
            await self._holds.stand_behind(session, choice.behind)
        choice.behind, choice.later = [], []
