"""One query that says what a claim has to think of: nearly always, nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from postroom.stores.mongo.collections import OPEN, CollectionNames, Collections, among, bare
from postroom.stores.mongo.server import Document, Session

LANES_MAX = 1024
"""The id of a claim: how many claims of its lane there were, times this, and the lane."""
IN_FLIGHT: Document = {"lane": 1, "epoch": 1, "marked": {"$ne": [{"$type": "$mark"}, "missing"]}}


@dataclass(slots=True)
class ClaimState:
    """What stands around the lines of some lanes, in one snapshot."""

    at: datetime | None = None
    """This moment; None when none of the lanes is this owner's."""
    epochs: dict[int, int] = field(default_factory=dict)
    claims: dict[int, int] = field(default_factory=dict)
    """How many claims there ever were of each lane: with the lane, the id of the next."""
    busy: set[int] = field(default_factory=set)
    stale: list[int] = field(default_factory=list)
    """Claims of an earlier epoch than their lane's, or with an earlier number than its last one: written too late to count,
    where there are no transactions."""
    any_held: bool = False
    any_freed: bool = False
    """The wait of a key is over."""
    any_due: bool = False
    """A message became due."""
    strangers: bool = False

    def free(self, lanes: Mapping[int, int]) -> dict[int, int]:
        """Of these lanes, those that are mine at that epoch, with nothing in flight (R11)."""
        return {
            lane: epoch
            for lane, epoch in sorted(lanes.items())
            if self.epochs.get(lane) == epoch and lane not in self.busy
        }


async def signs(
    shelves: CollectionNames, session: Session, owner: str, lanes: Collection[int], now: datetime | None
) -> ClaimState:
    """Look around these lanes."""
    mine = {"lane": "$_id", "epoch": "$epoch", "claims": "$claims"}
    pipeline: list[Document] = [
        {"$match": {"_id": among(lanes), "owner": owner}},
        # One document from here on, so that each look-up is made once.
        {"$group": {"_id": None, "lanes": {"$push": mine}}},
        _look("busy", shelves.claim, {"lane": among(lanes)}, project=IN_FLIGHT),
        _look("held", shelves.hold, {"lane": among(lanes)}, limit=1),
        *_waits(shelves, lanes),
    ]
    found = await (await shelves.lane.aggregate(pipeline, session=session)).to_list()
    if not found:
        return ClaimState()
    (around,) = found
    seen = _read(around, now)
    seen.epochs = {each["lane"]: each["epoch"] for each in around["lanes"]}
    seen.claims = {each["lane"]: each["claims"] for each in around["lanes"]}
    for each in around["busy"]:
        if _is_stale(each, seen):
            seen.stale.append(each["_id"])
        else:
            seen.busy.add(each["lane"])
    seen.any_held = bool(around["held"])
    return seen


def _is_stale(claim: Document, seen: ClaimState) -> bool:
    lane, number = claim["lane"], claim["_id"] // LANES_MAX
    if lane not in seen.epochs or claim["marked"]:
        return False
    return bool(claim["epoch"] != seen.epochs[lane] or number < seen.claims[lane])


async def anything(shelves: CollectionNames, lanes: Collection[int], now: datetime | None) -> bool:
    """Is there anything in these lanes that a claim should look at?"""
    line = _look("line", shelves.outbox, {"line": among(lanes), **OPEN}, limit=1)
    # Any lane's document will do: it is only what the look-ups are hung on.
    pipeline = [{"$match": {"_id": 0}}, {"$project": {"_id": 1}}, line, *_waits(shelves, lanes)]
    for around in await (await shelves.lane.aggregate(pipeline)).to_list():
        seen = _read(around, now)
        return bool(around["line"]) or seen.any_freed or seen.any_due or seen.strangers
    return False


def _waits(shelves: CollectionNames, lanes: Collection[int]) -> list[Document]:
    """The first wait of a key that ends, the first message that becomes due, whatever a stranger wrote; and the moment."""
    waiting = {"lane": among(lanes), "until": {"$type": "date"}}
    return [
        _look("freed", shelves.hold, waiting, by="until", limit=1),
        _look("due", shelves.outbox, {"later": among(lanes)}, by="due_at", limit=1),
        _look("strangers", shelves.outbox, {"seq": None}, limit=1),
        {"$set": {"at": "$$NOW"}},
    ]


def _read(around: Document, now: datetime | None) -> ClaimState:
    at: datetime = around["at"] if now is None else bare(now)
    return ClaimState(
        at=at,
        any_freed=any(each["until"] <= at for each in around["freed"]),
        any_due=any(each["due_at"] <= at for each in around["due"]),
        strangers=bool(around["strangers"]),
    )


def _look(
    name: str, books: Collections, query: Document, *, by: str = "", limit: int = 0, project: Document | None = None
) -> Document:
    """A look-up that depends on nothing in the document: a query of its own, in the same round trip and snapshot."""
    pipeline: list[Document] = [{"$match": query}]
    if by:
        pipeline.append({"$sort": {by: 1}})
    if limit:
        pipeline.append({"$limit": limit})
    pipeline.append({"$project": project or ({by: 1} if by else {"_id": 1})})
    return {"$lookup": {"from": books.name, "pipeline": pipeline, "as": name}}
