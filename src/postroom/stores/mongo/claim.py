"""Claiming: lanes where nothing waits as they are read, the others by a closer look.

One aggregation first reports held keys, due messages and documents that were written by hand. Usually there are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter

from pymongo.errors import BulkWriteError

from postroom.contracts.outbox import Claim, per_lane
from postroom.stores.mongo.careful_claim import CarefulClaim
from postroom.stores.mongo.collections import OPEN, Collections, DocumentCollection, Part, among, bare, mine
from postroom.stores.mongo.connections import Document, Session
from postroom.stores.mongo.rows import claimed_in
from postroom.stores.mongo.settle import UNMARKED, Settling
from postroom.stores.selection import Seen, fair

LANES_MAX = 1024
"""The id of a claim: how many claims of its lane there were, times this, and the lane."""
IN_FLIGHT: Document = {"lane": 1, "epoch": 1, "marked": {"$ne": [{"$type": "$mark"}, "missing"]}}
_seq = itemgetter("seq")


class ForeignRowsFirst(Exception):
    """Somebody wrote by hand: those documents get their places before anything is looked at."""


class Overtaken(Exception):
    """Another was quicker, or something came into the line before what was chosen: it is looked at again."""


class Claiming(Part):
    """Each method runs inside the transaction it is given."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._closer, self._settling = CarefulClaim(collections), Settling(collections)
        self._without_transactions = ClaimWithoutTransactions(collections)

    async def claim(
        self,
        session: Session,
        owner: str,
        lanes: Mapping[int, int],
        limit: int,
        now: datetime | None,
        doubtful: Collection[int] = (),
        alone: bool = False,
    ) -> Sequence[Claim]:
        if in_doubt := {lane: lanes[lane] for lane in doubtful if lane in lanes}:
            await self._drop_orphans(session, owner, in_doubt)
        seen = await look_around(self.collections, session, owner, list(lanes), now)
        if seen.any_foreign:
            raise ForeignRowsFirst
        await self._drop_stale(session, seen.stale)
        epochs = seen.free(lanes)
        if not epochs or limit < 1 or seen.at is None:
            return []
        lines, freed = await self._lines(session, list(epochs), per_lane(limit, len(epochs)), seen.at, seen)
        chosen = fair({lane: line for lane, line in lines.items() if line}, limit)
        if not chosen:
            return []
        if session is None:
            await self._without_transactions.look_again(chosen)
        claims = [_claim(owner, epochs[lane], lane, seen, chosen[lane], freed) for lane in sorted(chosen)]
        written = [_written(claim, seen.at, alone=alone) for claim in claims]
        if session is None:
            await self._without_transactions.lock(claims, seen.claims)
            await self._without_transactions.insert(written, mine(owner, {claim.lane: claim.epoch for claim in claims}))
        else:
            await self._lock(session, claims)
            await self.collections.claim.insert_many(written, session=session)
        return claims

    async def _drop_orphans(self, session: Session, owner: str, lanes: Mapping[int, int]) -> None:
        """R22: claims of mine whose answer was lost; but what was decided is carried out, not undone. Each lane is counted up
        first. That is its lock: a claim of it whose commit is under way and this one cannot both commit. And where there are
        no transactions, a claim that is written later than this is known by its number (`ClaimState.stale`)."""
        await self.collections.lane.update_many(mine(owner, lanes), {"$inc": {"claims": 1}}, session=session)
        orphans = [{"lane": lane, "epoch": epoch} for lane, epoch in lanes.items()]
        query = {"owner": owner, "$or": orphans}
        await self.collections.claim.delete_many({**query, **UNMARKED}, session=session)
        decided = await self.collections.claim.find(query, session=session).to_list()
        await self._settling.carry_out(session, decided)

    async def _drop_stale(self, session: Session, stale: Collection[int]) -> None:
        """R11, its other form: a claim of an earlier epoch than the lane's, or with an earlier number than its last one, was
        never answered, and nothing of it was sent."""
        if stale:
            await self.collections.claim.delete_many({"_id": among(stale), **UNMARKED}, session=session)

    async def _lines(
        self, session: Session, lanes: Sequence[int], want: int, at: datetime, seen: ClaimState
    ) -> tuple[dict[int, list[Document]], set[str]]:
        """What may go in each lane, in order, as whole documents; and which keys come out of a wait."""
        lines: dict[int, list[Document]] = await self._read(session, lanes, want)
        every = [each for line in lines.values() for each in line]
        held = await self._closer.held(session, every) if seen.any_held else set()
        odd = (
            set(lanes)
            if seen.any_due or seen.any_freed
            else {lane for lane, line in lines.items() if any(_odd(each, at, held) for each in line)}
        )
        freed: set[str] = set()
        looked: dict[int, Sequence[Seen]] = {}
        for lane in sorted(odd):
            looked[lane], keys = await self._closer.line(
                session, lane, want, at, due=seen.any_due, freed=seen.any_freed
            )
            looked[lane] = looked[lane][:want]
            freed |= keys
        whole = await self._whole(session, [each.seq for line in looked.values() for each in line])
        for lane, line in looked.items():
            lines[lane] = [whole[each.seq] for each in line if each.seq in whole]
        return lines, freed

    async def _read(self, session: Session, lanes: Sequence[int], want: int) -> dict[int, list[Document]]:
        """The first so many in the line of each lane, from its very start: openness decides, never a position (R15)."""
        pipeline: list[Document] = [
            {"$match": {"_id": among(lanes)}},
            {
                "$lookup": {
                    "from": self.collections.outbox.name,
                    "localField": "_id",
                    "foreignField": "line",
                    "pipeline": [{"$match": OPEN}, {"$sort": {"seq": 1}}, {"$limit": want}],
                    "as": "message",
                }
            },
            # Right behind it, so that the messages of a lane never are one document, which might be too large.
            {"$unwind": "$message"},
            {"$replaceRoot": {"newRoot": "$message"}},
        ]
        lines: defaultdict[int, list[Document]] = defaultdict(list)
        found = await self.collections.lane.aggregate(pipeline, session=session, batchSize=want * len(lanes) + 1)
        for each in await found.to_list():
            lines[each["line"]].append(each)
        return {lane: sorted(line, key=_seq) for lane, line in lines.items()}

    async def _whole(self, session: Session, seqs: Sequence[int]) -> dict[int, Document]:
        if not seqs:
            return {}
        found = self.collections.outbox.find({"seq": among(seqs)}, session=session, batch_size=len(seqs) + 1)
        return {each["seq"]: each for each in await found.to_list()}

    async def _lock(self, session: Session, claims: Sequence[Claim]) -> None:
        """R11: written, so that whoever takes a lane meanwhile and this claim cannot both commit."""
        held = {"_id": among([claim.lane for claim in claims]), "owner": claims[0].owner}
        locked = await self.collections.lane.update_many(held, {"$inc": {"claims": 1}}, session=session)
        if locked.matched_count != len(claims):
            raise Overtaken


class ClaimWithoutTransactions(Part):
    """The second looks of a claim without a transaction: what a snapshot and a lock would give is looked at again."""

    async def look_again(self, chosen: Mapping[int, Sequence[Document]]) -> None:
        """Raise Overtaken when there is something before the last one chosen that was not seen: the line is read while others
        write to it, and an earlier message of a key may have come behind the reader, a later one before it (R13)."""
        lines = {lane: [each["seq"] for each in line if "line" in each] for lane, line in chosen.items()}
        reach = [{"line": lane, "seq": {"$lt": seqs[-1]}} for lane, seqs in lines.items() if seqs]
        if not reach:
            return
        seen = {seq for seqs in lines.values() for seq in seqs}
        there = self.collections.outbox.find({"$or": reach, **OPEN}, {"_id": 0, "seq": 1}).to_list()
        if any(each["seq"] not in seen for each in await there):
            raise Overtaken

    async def lock(self, claims: Sequence[Claim], numbers: Mapping[int, int]) -> None:
        """Write the lanes as they were seen: of two who claim from a lane at once, one gets the next number."""
        seen = [{"_id": each.lane, "epoch": each.epoch, "claims": numbers[each.lane]} for each in claims]
        held = {"owner": claims[0].owner, "$or": seen}
        locked = await self.collections.lane.update_many(held, {"$inc": {"claims": 1}})
        if locked.matched_count != len(claims):
            raise Overtaken

    async def insert(self, claims: Sequence[Document], held: Document) -> None:
        """Write the claims, and see that their lanes are still held. Who takes one of them writes the lane first and looks
        for claims then: one of the two sees the other. A claim that came too late is dropped, by us or, if we die here, by
        the lane's next owner, who knows it by its epoch."""
        try:
            await self.collections.claim.insert_many(claims, ordered=False)
            kept = await self.collections.lane.count_documents(held) == len(claims)
        except BulkWriteError:  # another's claim, which came too late, is still there
            kept = False
        if not kept:
            await self.collections.claim.delete_many({"_id": among([claim["_id"] for claim in claims])})
            raise Overtaken


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
    any_foreign: bool = False
    """Somebody wrote a document by hand."""

    def free(self, lanes: Mapping[int, int]) -> dict[int, int]:
        """Of these lanes, those that are mine at that epoch, with nothing in flight (R11)."""
        return {
            lane: epoch
            for lane, epoch in sorted(lanes.items())
            if self.epochs.get(lane) == epoch and lane not in self.busy
        }


async def look_around(
    collections: Collections, session: Session, owner: str, lanes: Collection[int], now: datetime | None
) -> ClaimState:
    """Ask, in one query, what a claim of these lanes has to think of."""
    mine = {"lane": "$_id", "epoch": "$epoch", "claims": "$claims"}
    pipeline: list[Document] = [
        {"$match": {"_id": among(lanes), "owner": owner}},
        # One document from here on, so that each look-up is made once.
        {"$group": {"_id": None, "lanes": {"$push": mine}}},
        _look("busy", collections.claim, {"lane": among(lanes)}, project=IN_FLIGHT),
        _look("held", collections.hold, {"lane": among(lanes)}, limit=1),
        *_waits(collections, lanes),
    ]
    found = await (await collections.lane.aggregate(pipeline, session=session)).to_list()
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


async def anything(collections: Collections, lanes: Collection[int], now: datetime | None) -> bool:
    """Is there anything in these lanes that a claim should look at?"""
    line = _look("line", collections.outbox, {"line": among(lanes), **OPEN}, limit=1)
    # Any lane's document will do: it is only what the look-ups are hung on.
    pipeline = [{"$match": {"_id": 0}}, {"$project": {"_id": 1}}, line, *_waits(collections, lanes)]
    for around in await (await collections.lane.aggregate(pipeline)).to_list():
        seen = _read(around, now)
        return bool(around["line"]) or seen.any_freed or seen.any_due or seen.any_foreign
    return False


def _waits(collections: Collections, lanes: Collection[int]) -> list[Document]:
    """The first wait of a key that ends, the first message that becomes due, a document written by hand; and the moment."""
    waiting = {"lane": among(lanes), "until": {"$type": "date"}}
    return [
        _look("freed", collections.hold, waiting, by="until", limit=1),
        _look("due", collections.outbox, {"later": among(lanes)}, by="due_at", limit=1),
        _look("foreign", collections.outbox, {"seq": None}, limit=1),
        {"$set": {"at": "$$NOW"}},
    ]


def _read(around: Document, now: datetime | None) -> ClaimState:
    at: datetime = around["at"] if now is None else bare(now)
    return ClaimState(
        at=at,
        any_freed=any(each["until"] <= at for each in around["freed"]),
        any_due=any(each["due_at"] <= at for each in around["due"]),
        any_foreign=bool(around["foreign"]),
    )


def _look(
    name: str,
    collection: DocumentCollection,
    query: Document,
    *,
    by: str = "",
    limit: int = 0,
    project: Document | None = None,
) -> Document:
    """A look-up that depends on nothing in the document: a query of its own, in the same round trip and snapshot."""
    pipeline: list[Document] = [{"$match": query}]
    if by:
        pipeline.append({"$sort": {by: 1}})
    if limit:
        pipeline.append({"$limit": limit})
    pipeline.append({"$project": project or ({by: 1} if by else {"_id": 1})})
    return {"$lookup": {"from": collection.name, "pipeline": pipeline, "as": name}}


def _odd(found: Document, at: datetime, held: set[str]) -> bool:
    """It has to wait, or to travel alone: its lane wants a closer look."""
    due_at = found.get("due_at")
    return bool(found.get("lost")) or (due_at is not None and due_at > at) or found.get("key") in held


def _claim(owner: str, epoch: int, lane: int, seen: ClaimState, chosen: Sequence[Document], freed: set[str]) -> Claim:
    at = seen.at
    assert at is not None  # noqa: S101 - a lane of mine came with its moment
    messages = [claimed_in(each, at) for each in chosen]
    keys = frozenset(key for each in chosen if (key := each.get("key")) in freed) if freed else frozenset()
    # Never used again (R3): how many claims of this lane there were, and the lane.
    claim_id = (seen.claims[lane] + 1) * LANES_MAX + lane
    return Claim(claim_id, lane, epoch, owner, max(each.get("lost", 0) for each in chosen), messages, keys)


def _written(claim: Claim, at: datetime, *, alone: bool) -> Document:
    return {
        "_id": claim.id,
        "lane": claim.lane,
        "epoch": claim.epoch,
        "owner": claim.owner,
        "seqs": [claimed.seq for claimed in claim.messages],
        "claimed_at": at,
        "alone": alone,
    }
