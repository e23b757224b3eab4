"""What each verdict writes, and the care for the keys it touched."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pymongo import DeleteMany, UpdateMany, UpdateOne, WriteConcern

from postroom.store import ERROR_MAX, Buried, Expired, Published, Retry, Verdict
from postroom.stores.mongo.books import ASIDE, OPEN, Shelves, among
from postroom.stores.mongo.schema import first_moment
from postroom.stores.mongo.server import Document, Session

DONE: Document = ASIDE | {"solo": ""}
SENT: Document = DONE | {"last_error_code": "", "last_error": ""}
STILL_IN_LINE: Document = {name: "" for name in SENT if name != "line"}
"""Taking a document out of an index costs five times as much inside a transaction: see `tidy`."""


class Place(NamedTuple):
    """Where a message belongs, whatever becomes of it."""

    key: str | None
    lane: int


class Verdicts:
    """Each method runs inside the transaction it is given."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves

    async def publish(self, session: Session, seqs: Collection[int], now: datetime | None) -> None:
        """The happy path, many at once; by the server's clock, unless a moment is given. They still stand in the line,
        where nobody takes them for open: `tidy` them when this is committed."""
        done = _published(now) | {"$unset": STILL_IN_LINE}
        await self._shelves.outbox.update_many(_still_open(seqs), done, session=session)

    async def tidy(self, seqs: Collection[int]) -> None:
        """Take what is settled out of the line. Outside of any transaction; twice is fine, and never is harmless: the next
        claim that meets one of them does it."""
        loosely = self._shelves.outbox.with_options(write_concern=WriteConcern(1))
        await loosely.update_many({"seq": among(seqs), "outcome": {"$ne": None}}, {"$unset": {"line": ""}})

    async def record(
        self,
        session: Session,
        verdicts: Mapping[int, Verdict],
        places: Mapping[int, Place],
        at: datetime,
        *,
        solo: bool = False,
    ) -> None:
        """Write the verdicts, on messages that are still open."""
        writes: list[Any] = []
        published = [seq for seq, verdict in verdicts.items() if isinstance(verdict, Published)]
        expired = [seq for seq, verdict in verdicts.items() if isinstance(verdict, Expired)]
        if published:
            writes.append(UpdateMany(_still_open(published), _published(at)))
        if expired:
            closed = {"$set": {"outcome": "expired", "settled_at": at}, "$unset": DONE}
            writes.append(UpdateMany(_still_open(expired), closed))
        for seq, verdict in sorted(verdicts.items()):
            match verdict:
                case Buried():
                    writes.append(UpdateOne({"seq": seq, **OPEN}, _buried(verdict, places[seq], at)))
                case Retry():
                    writes.append(UpdateOne({"seq": seq, **OPEN}, _retried(verdict, places[seq], at, solo=solo)))
        if writes:
            await self._shelves.outbox.bulk_write(writes, session=session)

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
        if over := [key for key in keys if key not in holds]:
            writes.append(DeleteMany({"_id": among(over)}))
        await self._shelves.hold.bulk_write(writes, session=session)

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


def _still_open(seqs: Collection[int]) -> Document:
    return {"seq": among(seqs), **OPEN}


def _published(now: datetime | None) -> Document:
    told: Document = {"$set": {"outcome": "published"}, "$inc": {"attempts": 1}, "$unset": SENT}
    if now is None:
        return told | {"$currentDate": {"settled_at": True, "tried_at": True}}
    return told | {"$set": {"outcome": "published", "settled_at": now, "tried_at": now}}


def _buried(verdict: Buried, place: Place, at: datetime) -> Document:
    parks = {"parks": place.key} if verdict.park and place.key is not None else {}
    facts = {"outcome": "dead", "settled_at": at, "tried_at": at, **_error(verdict), **parks}
    return {"$set": facts, "$inc": {"attempts": 1}, "$unset": _without(DONE, facts)}


def _retried(verdict: Retry, place: Place, at: datetime, *, solo: bool) -> Document:
    aside: Document = {"later": place.lane} if place.key is None else {"behind": place.key}
    facts = {"tried_at": at, "due_at": at + verdict.after, **_error(verdict), **aside}
    if solo:
        facts["solo"] = True
    return {"$set": facts, "$inc": {"attempts": int(verdict.spent)}, "$unset": _without(ASIDE, facts)}


def _error(verdict: Buried | Retry) -> Document:
    return {"last_error_code": verdict.code, "last_error": verdict.error[:ERROR_MAX]}


def _without(fields: Document, those: Collection[str]) -> Document:
    return {name: value for name, value in fields.items() if name not in those}


def places_of(found: Sequence[Document]) -> dict[int, Place]:
    """Where these messages belong, by seq."""
    return {each["seq"]: Place(each.get("key"), each["lane"]) for each in found}
