"""Settling, in three steps of which the first decides: the claim is marked with what became of its messages; the messages
are written; the claim is gone.

Until it is gone nobody claims from its lane. Who dies on the way leaves a marked claim, and whoever takes the lane over
carries it out: so the messages need not be written in the transaction that decides, which would take five times as long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne, WriteConcern

from postroom.stores.mongo.collections import OPEN, CollectionNames, among
from postroom.stores.mongo.dead import Dead
from postroom.stores.mongo.holds import Holds
from postroom.stores.mongo.server import Document, Session
from postroom.stores.mongo.updates import published, writes
from postroom.telemetry.failpoints import reach

UNMARKED: Document = {"mark": None}
LOOSE = WriteConcern(1)
"""For what is followed by a write to a majority: that one waits for all before it."""


class Settling:
    """Marks and carries out. With a session, each is part of its transaction."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves = shelves
        self._holds, self._dead = Holds(shelves), Dead(shelves)

    async def publish(self, seqs: Mapping[int, Sequence[int]], at: datetime | None) -> list[int]:
        """Every message of these claims (id to seqs) was confirmed; which of the claims were there (R20). No transaction."""
        ids = among(list(seqs))
        marked = await self._shelves.claim.update_many({"_id": ids, **UNMARKED}, {"$set": {"mark": {"at": at}}})
        there = list(seqs)
        if marked.matched_count != len(seqs):
            found = self._shelves.claim.find({"_id": ids, "mark.lost": None, "mark": {"$ne": None}}, {"_id": 1})
            there = [each["_id"] async for each in found]
        reach("after-mark")
        if there:
            await self._publish(None, [seq for each in there for seq in seqs[each]], at)
            await self._shelves.claim.delete_many({"_id": among(there)})
        return there

    async def mark(self, session: Session, marks: Mapping[int, Document], *, lost: bool = False) -> list[Document]:
        """Mark these claims with notes and the keys they touch; those of them that are there, marked so now or before.
        A mark stays: of a settle and a takeover at the same moment, one comes too late."""
        kind: Document = {"lost": True} if lost else {}
        if marks:
            marking = [
                UpdateOne({"_id": claim, **UNMARKED}, {"$set": {"mark": {**mark, **kind}}})
                for claim, mark in marks.items()
            ]
            await self._shelves.claim.bulk_write(marking, session=session, ordered=False)
        mine = {"_id": among(list(marks)), "mark": {"$ne": None}, "mark.lost": kind.get("lost")}
        return await self._shelves.claim.find(mine, session=session).to_list()

    async def carry_out(self, session: Session, claims: Sequence[Document]) -> None:
        """Do what the marks of these claims say, and drop them."""
        if not claims:
            return
        confirmed: defaultdict[datetime | None, list[int]] = defaultdict(list)
        noted: list[Any] = []
        died: list[int] = []
        keys: set[str] = set()
        for claim in claims:
            mark = claim["mark"]
            if "notes" not in mark:
                confirmed[mark["at"]] += claim["seqs"]
                continue
            noted += writes(claim["_id"], mark["notes"])
            died += [each["seq"] for each in mark["notes"] if each["facts"].get("outcome") == "dead"]
            keys |= set(mark["keys"])
        for at, seqs in confirmed.items():
            await self._publish(session, seqs, at)
        if noted:
            await self._shelves.outbox.bulk_write(noted, session=session, ordered=False)
        await self._dead.move(session, died)
        await self._holds.look_after(session, keys)
        await self._shelves.claim.delete_many({"_id": among([claim["_id"] for claim in claims])}, session=session)

    async def _publish(self, session: Session, seqs: Sequence[int], at: datetime | None) -> None:
        outbox = self._shelves.outbox
        if session is None:
            outbox = outbox.with_options(write_concern=LOOSE)
        # The validator is for strangers, and nothing here is what it looks at.
        await outbox.update_many(
            {"seq": among(seqs), **OPEN}, published(at), session=session, bypass_document_validation=True
        )
