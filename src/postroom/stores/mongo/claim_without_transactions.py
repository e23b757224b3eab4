"""Claiming without a transaction: what a snapshot and a lock would give is looked at a second time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymongo.errors import BulkWriteError

from postroom.contracts.outbox import Claim
from postroom.stores.mongo.collections import OPEN, CollectionNames, among
from postroom.stores.mongo.server import Document


class Overtaken(Exception):
    """Another was quicker, or something came into the line before what was chosen: it is looked at again."""


class ClaimWithoutTransactions:
    """The second looks of a claim."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves = shelves

    async def look_again(self, chosen: Mapping[int, Sequence[Document]]) -> None:
        """Raise Overtaken when there is something before the last one chosen that was not seen: the line is read while others
        write to it, and an earlier message of a key may have come behind the reader, a later one before it (R13)."""
        lines = {lane: [each["seq"] for each in line if "line" in each] for lane, line in chosen.items()}
        reach = [{"line": lane, "seq": {"$lt": seqs[-1]}} for lane, seqs in lines.items() if seqs]
        if not reach:
            return
        seen = {seq for seqs in lines.values() for seq in seqs}
        there = self._shelves.outbox.find({"$or": reach, **OPEN}, {"_id": 0, "seq": 1}).to_list()
        if any(each["seq"] not in seen for each in await there):
            raise Overtaken

    async def lock(self, claims: Sequence[Claim], numbers: Mapping[int, int]) -> None:
        """Write the lanes as they were seen: of two who claim from a lane at once, one gets the next number."""
        seen = [{"_id": each.lane, "epoch": each.epoch, "claims": numbers[each.lane]} for each in claims]
        held = {"owner": claims[0].owner, "$or": seen}
        locked = await self._shelves.lane.update_many(held, {"$inc": {"claims": 1}})
        if locked.matched_count != len(claims):
            raise Overtaken

    async def insert(self, claims: Sequence[Document], held: Document) -> None:
        """Write the claims, and see that their lanes are still held. Who takes one of them writes the lane first and looks
        for claims then: one of the two sees the other. A claim that came too late is dropped, by us or, if we die here, by
        the lane's next owner, who knows it by its epoch."""
        try:
            await self._shelves.claim.insert_many(claims, ordered=False)
            kept = await self._shelves.lane.count_documents(held) == len(claims)
        except BulkWriteError:  # another's claim, which came too late, is still there
            kept = False
        if not kept:
            await self._shelves.claim.delete_many({"_id": among([claim["_id"] for claim in claims])})
            raise Overtaken
