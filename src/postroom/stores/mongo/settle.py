"""Settling, in three steps of which the first decides: the claim is marked with what became of its messages; the messages
are written; the claim is gone.

Until it is gone nobody claims from its lane. Who dies on the way leaves a marked claim, and whoever takes the lane over
carries it out: so the messages need not be written in the transaction that decides, which would take five times as long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pymongo import DeleteMany, UpdateMany, UpdateOne, WriteConcern

from postroom.contracts.outbox import Buried, Expired, Published, Retry, Verdict
from postroom.stores.mongo.collections import ASIDE, OPEN, Collections, Part, among
from postroom.stores.mongo.connections import Document, Session
from postroom.stores.mongo.rows import DeadApart
from postroom.stores.rows import kept_code, kept_error
from postroom.telemetry.failpoints import reach

UNMARKED: Document = {"mark": None}
LOOSE = WriteConcern(1)
"""For what is followed by a write to a majority: that one waits for all before it."""
DONE: Document = ASIDE | {"lost": ""}
SENT: Document = DONE | {"last_error_code": "", "last_error": ""}
EARLIEST = datetime(1970, 1, 1)  # noqa: DTZ001 - moments have no zone in here
"""The end of a wait that is over."""


class Settling(Part):
    """Marks and carries out. With a session, each is part of its transaction."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._holds, self._dead = Holds(collections), DeadApart(collections)

    async def publish(self, seqs: Mapping[int, Sequence[int]], at: datetime | None) -> list[int]:
        """Every message of these claims (id to seqs) was confirmed; which of the claims were there (R20). No transaction."""
        ids = among(list(seqs))
        marked = await self.collections.claim.update_many({"_id": ids, **UNMARKED}, {"$set": {"mark": {"at": at}}})
        there = list(seqs)
        if marked.matched_count != len(seqs):
            found = self.collections.claim.find({"_id": ids, "mark.lost": None, "mark": {"$ne": None}}, {"_id": 1})
            there = [each["_id"] async for each in found]
        reach("after-mark")
        if there:
            await self._publish(None, [seq for each in there for seq in seqs[each]], at)
            await self.collections.claim.delete_many({"_id": among(there)})
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
            await self.collections.claim.bulk_write(marking, session=session, ordered=False)
        mine = {"_id": among(list(marks)), "mark": {"$ne": None}, "mark.lost": kind.get("lost")}
        return await self.collections.claim.find(mine, session=session).to_list()

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
            await self.collections.outbox.bulk_write(noted, session=session, ordered=False)
        await self._dead.move(session, died)
        await self._holds.look_after(session, keys)
        await self.collections.claim.delete_many({"_id": among([claim["_id"] for claim in claims])}, session=session)

    async def _publish(self, session: Session, seqs: Sequence[int], at: datetime | None) -> None:
        outbox = self.collections.outbox
        if session is None:
            outbox = outbox.with_options(write_concern=LOOSE)
        # The validator is for strangers, and nothing here is what it looks at.
        await outbox.update_many(
            {"seq": among(seqs), **OPEN}, published(at), session=session, bypass_document_validation=True
        )


class Holds(Part):
    """The keys that have to wait, and until when. Each method runs inside the transaction it is given."""

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
        await self.collections.hold.bulk_write(writes, session=session)
        if session is None and over:
            # In a transaction `stand_behind` at this moment meets our write; without one, what it put there is seen now.
            await self.look_after(None, [*await self._waiting(None, over)])

    async def look_after_all(self, which: Document) -> None:
        """Make good what somebody left who died in between, without transactions: a key that waits for nothing."""
        parked = await self.collections.hold.distinct("_id", which)
        behind = await self.collections.outbox.distinct("behind", {**which, "behind": {"$exists": True}})
        await self.look_after(None, {*parked, *behind})

    async def stand_behind(self, session: Session, seqs: Collection[int]) -> None:
        """Take these out of the line, each behind its key's head. The holds are written too: whoever lets a key go at this
        moment, and did not see what now stands behind it, meets that write."""
        behind: list[Document] = [{"$set": {"behind": "$key"}}, {"$unset": ["line", "later"]}]
        await self.collections.outbox.update_many({"seq": among(seqs)}, behind, session=session)
        keys = await self.collections.outbox.distinct("behind", {"seq": among(seqs)}, session=session)
        met = await self.collections.hold.update_many({"_id": among(keys)}, {"$inc": {"met": 1}}, session=session)
        if met.matched_count != len(keys):
            await self.look_after(session, keys)

    async def _waiting(self, session: Session, keys: Collection[str]) -> dict[str, tuple[int, datetime | None]]:
        """A key waits until its failed head's next try."""
        tried = {"$cond": [{"$gt": ["$tried_at", None]}, "$due_at", None]}
        behind = await self.collections.outbox.aggregate(
            [
                {"$match": {"behind": among(keys)}},
                {"$group": {"_id": "$behind", "lane": {"$min": "$lane"}, "until": {"$max": tried}}},
            ],
            session=session,
        )
        return {found["_id"]: (found["lane"], found["until"] or EARLIEST) async for found in behind}

    async def _parked(self, session: Session, keys: Collection[str]) -> dict[str, tuple[int, datetime | None]]:
        """With a dead head that parks it, it waits until a person acts."""
        heads = self.collections.outbox.find({"parks": among(keys)}, {"parks": 1, "lane": 1}, session=session)
        return {found["parks"]: (found["lane"], None) async for found in heads}


class RowPlace(NamedTuple):
    """Where a message belongs, whatever becomes of it."""

    key: str | None
    lane: int


def places_of(found: Sequence[Document]) -> dict[int, RowPlace]:
    """Where these messages belong, by seq."""
    return {each["seq"]: RowPlace(each.get("key"), each["lane"]) for each in found}


def notes(
    verdicts: Mapping[int, Verdict], places: Mapping[int, RowPlace], at: datetime, *, lost: bool = False
) -> list[Document]:
    """A note for each message that the verdicts change: which fields it gets, and whether a try was spent."""
    return [
        {"seq": seq, "spent": spent, "facts": facts, "lost": int(lost)}
        for seq, verdict in sorted(verdicts.items())
        for facts, spent in _meaning(verdict, places[seq], at)
    ]


def _meaning(verdict: Verdict, place: RowPlace, at: datetime) -> Iterable[tuple[Document, int]]:
    match verdict:
        case Published():
            yield {"outcome": "published", "settled_at": at, "tried_at": at}, 1
        case Expired():
            yield {"outcome": "expired", "settled_at": at}, 0
        case Buried(park=park):
            parks = {"parks": place.key} if park and place.key is not None else {}
            yield {"outcome": "dead", "settled_at": at, "tried_at": at, **_error(verdict), **parks}, 1
        case Retry(after=after, spent=spent):
            aside: Document = {"later": place.lane} if place.key is None else {"behind": place.key}
            yield {"tried_at": at, "due_at": at + after, **_error(verdict), **aside}, int(spent)


def _error(verdict: Buried | Retry) -> Document:
    return {"last_error_code": kept_code(verdict.code), "last_error": kept_error(verdict.error)}


def writes(claim: int, noted: Iterable[Document]) -> list[UpdateMany]:
    """Carry the notes of this claim out, on messages that are still open. Twice is as once, and too late is never: `by` says
    whose note a message had last, and the claims of a lane are numbered in their order."""
    alike: defaultdict[Any, list[Document]] = defaultdict(list)
    for each in noted:
        # Those that were published or expired are written with one stroke; an error is each one's own.
        own = each["seq"] if "last_error" in each["facts"] else None
        alike[each["facts"].get("outcome"), own].append(each)
    fresh = {**OPEN, "by": {"$not": {"$gte": claim}}}
    return [
        UpdateMany({"seq": among([each["seq"] for each in same]), **fresh}, _update(claim, same[0]))
        for same in alike.values()
    ]


def _update(claim: int, note: Document) -> Document:
    facts: Document = note["facts"]
    outcome = facts.get("outcome")
    gone = SENT if outcome == "published" else DONE if outcome else ASIDE
    counted: Document = {"attempts": note["spent"]} | ({} if outcome else {"lost": note["lost"]})
    return {"$set": {**facts, "by": claim}, "$inc": counted, "$unset": _without(gone, facts)}


def published(at: datetime | None) -> Document:
    """The update of a message that was confirmed; by the server's clock, unless a moment is given."""
    told: Document = {"$set": {"outcome": "published"}, "$inc": {"attempts": 1}, "$unset": SENT}
    if at is None:
        return told | {"$currentDate": {"settled_at": True, "tried_at": True}}
    return told | {"$set": {"outcome": "published", "settled_at": at, "tried_at": at}}


def _without(fields: Document, those: Collection[str]) -> Document:
    return {name: value for name, value in fields.items() if name not in those}
