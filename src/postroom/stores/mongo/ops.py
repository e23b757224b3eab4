"""What a person asks and does: counts, find, requeue, discard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from postroom.contracts.ops import Counts, Progress, Query, Record, Status
from postroom.stores.chunks import Chunk, Done, end_of, in_chunks
from postroom.stores.mongo.collections import (
    OPEN,
    Collections,
    Part,
    among,
    bare,
    in_transaction,
    without_transaction,
    zoned,
)
from postroom.stores.mongo.connections import Document, Session
from postroom.stores.mongo.rows import DeadApart, ForeignRows, message_in
from postroom.stores.mongo.settle import DONE, SENT, Holds

NOT_GONE: Document = {"outcome": among([None, "dead"])}
"""What a person may change: a relay may have settled it since it was looked at, where there are no transactions."""
FLYING: Document = {"seqs": 1, "owner": 1, "claimed_at": 1}


class MongoOps(Part):
    """See `postroom.contracts.ops` for what each method promises."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._holds, self._dead = Holds(collections), DeadApart(collections)
        self._foreign_rows = ForeignRows(collections)

    @in_transaction
    async def counts(self, session: Session, *, now: datetime | None = None) -> Counts:
        at = await self.collections.clock(session, now)
        flying = await self._flying(session)
        failed = {"$cond": [{"$gt": ["$attempts", 0]}, "failed", "pending"]}
        groups = await self.collections.outbox.aggregate(
            [
                {"$set": {"outcome": {"$ifNull": ["$outcome", failed]}}},
                {"$group": {"_id": "$outcome", "number": {"$sum": 1}}},
            ],
            session=session,
        )
        by_status: Counter[Status] = Counter({each["_id"]: each["number"] async for each in groups})
        for each in await self._in_flight(session, list(flying)):
            by_status["failed" if each["attempts"] else "pending"] -= 1
            by_status["sending"] += 1
        oldest = await self._oldest(session, at)
        lag = timedelta(0) if oldest is None else max(at - oldest, timedelta(0))
        return Counts(by_status=by_status, lag=lag, parked=await self._parked(session))

    async def _oldest(self, session: Session, at: datetime) -> datetime | None:
        """One part for each index on what is open: together they would read everything that was ever published."""
        due = {"$or": [{"due_at": None}, {"due_at": {"$lte": at}}]}
        found = []
        for field in ("line", "behind", "later"):
            groups = await self.collections.outbox.aggregate(
                [
                    {"$match": {field: {"$exists": True}, **OPEN, **due}},
                    {"$group": {"_id": None, "at": {"$min": "$created_at"}}},
                ],
                session=session,
            )
            found += [each["at"] async for each in groups]
        return min(filter(None, found), default=None)

    async def _parked(self, session: Session) -> int:
        """How many open ones stand behind a dead head. Some may still be in the line: nobody looked at it since."""
        keys = [each["_id"] async for each in self.collections.hold.find({"until": None}, {"_id": 1}, session=session)]
        if not keys:
            return 0
        waiting = [{"behind": among(keys)}, {"line": {"$exists": True}, "key": among(keys), **OPEN}]
        later = {"later": {"$exists": True}, "key": among(keys)}
        return await self.collections.outbox.count_documents({"$or": [*waiting, later]}, session=session)

    async def find(self, query: Query) -> Sequence[Record]:
        if query.limit == 0:
            return []
        await self._foreign_rows.number()
        return await self._find(query)

    @in_transaction
    async def ids_between(self, session: Session, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        among_them = {"$gte": str(first), "$lte": str(last)}
        either = {"$or": [{"_id": among_them}, {"id": among_them}]}
        found = self.collections.outbox.find(either, {"id": 1}, session=session, limit=limit)
        return sorted(UUID(each.get("id") or each["_id"]) for each in await found.to_list())

    @in_transaction
    async def _find(self, session: Session, query: Query) -> Sequence[Record]:
        flying = await self._flying(session)
        found = self.collections.outbox.find(
            _filter(query, list(flying)), session=session, sort=[("seq", -1)], limit=query.limit or 0
        )
        rows = await self._dead.whole(session, (await found.to_list())[::-1])
        keys = {each["key"] for each in rows if each.get("key") is not None}
        holds = self.collections.hold.find({"_id": among(keys), "until": None}, {"_id": 1}, session=session)
        parked = {each["_id"] async for each in holds}
        return [_record(each, flying.get(each["seq"]), parked) for each in rows]

    async def _flying(self, session: Session) -> dict[int, Document]:
        """The claim that each message in flight is in."""
        claims = await self.collections.claim.find({}, FLYING, session=session).to_list()
        return {seq: claim for claim in claims for seq in claim["seqs"]}

    async def _in_flight(self, session: Session, seqs: Collection[int]) -> list[Document]:
        if not seqs:
            return []
        return await self.collections.outbox.find(
            {"seq": among(seqs), **OPEN}, {"attempts": 1}, session=session
        ).to_list()

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._requeue(query, chunk), told)

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        return await in_chunks(await self._top(), lambda chunk: self._discard(query, chunk, now), told)

    @without_transaction
    async def _top(self) -> int:
        """Give their places to documents that were written by hand; the last seq that there is then."""
        await self._foreign_rows.number()
        last = await self.collections.outbox.find_one({"seq": {"$ne": None}}, {"seq": 1}, sort=[("seq", -1)])
        return int(last["seq"]) if last else 0

    @in_transaction
    async def _requeue(self, session: Session, query: Query, chunk: Chunk) -> Done:
        """Back to pending, with the same id and place. Behind a hold it waits its turn; its key is looked after next."""
        rows = await self._matching(session, query, chunk, "dead", "failed")
        await self._dead.back(session, rows)
        keys = {each["key"] for each in rows if each.get("key") is not None}
        holds = self.collections.hold.find({"_id": among(keys)}, {"_id": 1}, session=session)
        held = {each["_id"] async for each in holds}
        behind = [each["seq"] for each in rows if each.get("key") in held]
        ahead = [each["seq"] for each in rows if each.get("key") not in held]
        fresh: Document = {"outcome": "", "settled_at": "", "due_at": "", **SENT}
        for seqs, field, place in ((behind, "behind", "$key"), (ahead, "line", "$lane")):
            if seqs:
                again: list[Document] = [
                    {"$unset": list(fresh)},
                    {"$set": {"attempts": 0, field: place}},
                ]
                await self.collections.outbox.update_many({"seq": among(seqs), **NOT_GONE}, again, session=session)
        await self._let_go(session, keys)
        return Done(len(rows), end_of([each["seq"] for each in rows], chunk))

    @in_transaction
    async def _discard(self, session: Session, query: Query, chunk: Chunk, now: datetime | None) -> Done:
        rows = await self._matching(session, query, chunk, "dead", "failed", "pending")
        await self._dead.back(session, rows)
        at = await self.collections.clock(session, now)
        if rows:
            closed = {"$set": {"outcome": "discarded", "settled_at": at}, "$unset": DONE}
            seqs = among([each["seq"] for each in rows])
            await self.collections.outbox.update_many({"seq": seqs, **NOT_GONE}, closed, session=session)
        await self._let_go(session, {each["key"] for each in rows if each.get("key") is not None})
        return Done(len(rows), end_of([each["seq"] for each in rows], chunk))

    async def _let_go(self, session: Session, keys: Collection[str]) -> None:
        """Let go of the keys that need not wait any longer; also of those that a command left which died just here."""
        if session is None:
            await self._holds.look_after_all({})
        else:
            await self._holds.look_after(session, keys)

    async def _matching(self, session: Session, query: Query, chunk: Chunk, *statuses: Status) -> list[Document]:
        """Those that a person means and may change: nothing in flight, nothing of another status."""
        flying = list(await self._flying(session))
        allowed = {"$or": [_status(status, flying) for status in statuses]}
        part = {"seq": {"$gt": chunk.after, "$lte": chunk.top}}
        wanted = {"$and": [part, _filter(query, flying), allowed]}
        found = self.collections.outbox.find(
            wanted, {"seq": 1, "key": 1}, session=session, sort=[("seq", 1)], limit=chunk.size
        )
        return await found.to_list()


def _filter(query: Query, flying: Collection[int]) -> Document:
    parts: list[Document] = []
    if query.ids:
        ids = among([str(each) for each in query.ids])
        parts.append({"$or": [{"_id": ids}, {"id": ids}]})
    if query.status is not None:
        parts.append(_status(query.status, flying))
    if query.type is not None:
        parts.append({"type": query.type})
    if query.key is not None:
        parts.append({"key": query.key})
    if query.before is not None:
        parts.append({"seq": {"$lt": query.before}})
    if query.since is not None:
        parts.append({"created_at": {"$gte": bare(query.since)}})
    return {"$and": parts} if parts else {}


def _status(status: Status, flying: Collection[int]) -> Document:
    match status:
        case "sending":
            return {"seq": among(flying), **OPEN}
        case "failed":
            return {**OPEN, "attempts": {"$gt": 0}, "seq": {"$nin": list(flying)}}
        case "pending":
            return {**OPEN, "attempts": {"$not": {"$gt": 0}}, "seq": {"$nin": list(flying)}}
    return {"outcome": status}


def _record(found: Document, claim: Document | None, parked: Collection[str]) -> Record:
    outcome: Status | None = found.get("outcome")
    claim = None if outcome else claim
    attempts = found.get("attempts", 0)
    open_status: Status = "sending" if claim else "failed" if attempts else "pending"
    settled_at, tried_at = found.get("settled_at"), found.get("tried_at")
    created_at = found["created_at"]
    return Record(
        seq=found["seq"],
        status=outcome or open_status,
        attempts=attempts,
        lane=found["lane"],
        created_at=_zoned(created_at),
        updated_at=_zoned(settled_at or tried_at or created_at),
        message=message_in(found),
        owner=claim["owner"] if claim else None,
        locked_at=zoned(claim["claimed_at"]) if claim else None,
        due_at=zoned(found.get("due_at")),
        settled_at=zoned(settled_at),
        digest=found.get("digest"),
        last_error_code=found.get("last_error_code"),
        last_error=found.get("last_error"),
        parked="parks" in found or (outcome is None and found.get("key") in parked),
    )


def _zoned(moment: datetime) -> datetime:
    return zoned(moment) or moment
