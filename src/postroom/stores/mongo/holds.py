"""The keys that have to wait, and until when."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from pymongo import DeleteMany, UpdateOne

from postroom.stores.mongo.collections import CollectionNames, among
from postroom.stores.mongo.schema import first_moment
from postroom.stores.mongo.server import Document, Session


class Holds:
    """Each method runs inside the transaction it is given."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves = shelves

    async def look_after(self, session: Session, keys: Collection[str]) -> None:
        """Hold the keys that must wait, until the right moment; let go of those that need not."""
        if not keys:
            return
        holds = await self._waiting(session, keys)
        holds |= await self._parked(session, keys)
        writes: list[Any] = [
            UpdateOne({"_id": key}, {"$set": {"lane": lane, "until": until}}, upsert=True)
            for key, (lane, until) in holds.items()
        ]
        over = [key for key in keys if key not in holds]
        if over:
            writes.append(DeleteMany({"_id": among(over)}))
        await self._shelves.hold.bulk_write(writes, session=session)
        if session is None and over:
            # In a transaction `stand_behind` at this moment meets our write; without one, what it put there is seen now.
            await self.look_after(None, [*await self._waiting(None, over)])

    async def look_after_all(self, which: Document) -> None:
        """Make good what somebody left who died in between, without transactions: a key that waits for nothing."""
        parked = await self._shelves.hold.distinct("_id", which)
        behind = await self._shelves.outbox.distinct("behind", {**which, "behind": {"$exists": True}})
        await self.look_after(None, {*parked, *behind})

    async def stand_behind(self, session: Session, seqs: Collection[int]) -> None:
        """Take these out of the line, each behind its key's head. The holds are written too: whoever lets a key go at this
        moment, and did not see what now stands behind it, meets that write."""
        behind: list[Document] = [{"$set": {"behind": "$key"}}, {"$unset": ["line", "later"]}]
        await self._shelves.outbox.update_many({"seq": among(seqs)}, behind, session=session)
        keys = await self._shelves.outbox.distinct("behind", {"seq": among(seqs)}, session=session)
        met = await self._shelves.hold.update_many({"_id": among(keys)}, {"$inc": {"met": 1}}, session=session)
        if met.matched_count != len(keys):
            await self.look_after(session, keys)

    async def _waiting(self, session: Session, keys: Collection[str]) -> dict[str, tuple[int, datetime | None]]:
        """A key waits until its failed head's next try."""
        tried = {"$cond": [{"$gt": ["$tried_at", None]}, "$due_at", None]}
        behind = await self._shelves.outbox.aggregate(
            [
                {"$match": {"behind": among(keys)}},
                {"$group": {"_id": "$behind", "lane": {"$min": "$lane"}, "until": {"$max": tried}}},
            ],
            session=session,
        )
        return {found["_id"]: (found["lane"], found["until"] or first_moment()) async for found in behind}

    async def _parked(self, session: Session, keys: Collection[str]) -> dict[str, tuple[int, datetime | None]]:
        """With a dead head that parks it, it waits until a person acts."""
        heads = self._shelves.outbox.find({"parks": among(keys)}, {"parks": 1, "lane": 1}, session=session)
        return {found["parks"]: (found["lane"], None) async for found in heads}
