"""Dead messages in a collection of their own, for who wants to look after them there.

A dead message moves as it is. What stays in the outbox is its place: everything but the content, so that its id is known,
its key waits, and it is found and counted where all messages are. Whoever reads puts the two together again, whatever its own
URL says.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import ReplaceOne, UpdateOne

from postroom.stores.mongo.collections import CollectionNames, among
from postroom.stores.mongo.server import Document, Session

CONTENT = ("payload", "body", "headers")


class Dead:
    """Each method runs inside the transaction it is given; without one, its writes are in an order that loses nothing."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves = shelves

    async def move(self, session: Session, seqs: Sequence[int]) -> None:
        """Move those of these that are dead, if that is wanted: the copy first."""
        if not seqs or not self._shelves.server.address.dead_apart:
            return
        dead = {"seq": among(seqs), "outcome": "dead", "apart": None}
        found = await self._shelves.outbox.find(dead, session=session).to_list()
        if not found:
            return
        copies = [ReplaceOne({"_id": each["_id"]}, each, upsert=True) for each in found]
        await self._shelves.dead.bulk_write(copies, session=session)
        moved = {"$set": {"apart": True}, "$unset": dict.fromkeys(CONTENT, "")}
        await self._shelves.outbox.update_many(dead, moved, session=session)

    async def whole(self, session: Session, found: Sequence[Document]) -> list[Document]:
        """These messages, each with its content."""
        ids = [each["_id"] for each in found if each.get("apart")]
        if not ids:
            return list(found)
        copies = await self._shelves.dead.find({"_id": among(ids)}, session=session).to_list()
        contents = {each["_id"]: _content(each) for each in copies}
        return [{**each, **contents.get(each["_id"], {})} for each in found]

    async def back(self, session: Session, found: Sequence[Document]) -> None:
        """Give these their content back, for they will be dead no longer; the copy goes last."""
        if not found:
            return
        ids = among([each["_id"] for each in found])
        copies = await self._shelves.dead.find({"_id": ids}, session=session).to_list()
        if copies:
            again = [
                UpdateOne({"_id": each["_id"], "apart": True}, {"$set": _content(each), "$unset": {"apart": ""}})
                for each in copies
            ]
            await self._shelves.outbox.bulk_write(again, session=session)
            await self._shelves.dead.delete_many({"_id": ids}, session=session)


def _content(found: Document) -> Document:
    return {name: found[name] for name in CONTENT if name in found}
