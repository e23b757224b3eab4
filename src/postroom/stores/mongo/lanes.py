"""Who may send what: take, renew, release."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.stores.mongo.collections import (
    OPEN,
    Collections,
    Part,
    among,
    bare,
    in_transaction,
    mine,
    without_transaction,
    zoned,
)
from postroom.stores.mongo.connections import Contended, Document, Session
from postroom.stores.mongo.settle import Holds, Settling, notes, places_of
from postroom.stores.selection import LostRow, after_a_crash

MEETING_SECONDS = 0.5
"""How long a take of many lanes is tried again; then they are taken one by one, and those that are held are left."""


class Terms(NamedTuple):
    """On which terms lanes are taken."""

    lease: timedelta
    lost: OnLeaseLost
    gone: Collection[str]
    """Owners whose lanes may be taken although their leases run."""
    now: datetime | None


class MongoLanes(Part):
    """See `postroom.contracts.lanes` for what each method promises."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._settling, self._holds = Settling(collections), Holds(collections)

    @without_transaction
    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        fields = ("name", "host", "pid", "version", "process")
        facts = {field: getattr(relay, field) for field in fields}
        seen: Document = {"$currentDate": {"seen_at": True}} if now is None else {"$set": {"seen_at": bare(now)}}
        told = {"$setOnInsert": facts, **seen}
        await self.collections.relay.update_one({"_id": relay.owner}, told, upsert=True)

    @without_transaction
    async def leave(self, owner: str) -> None:
        await self.collections.relay.delete_one({"_id": owner})

    @without_transaction
    async def relays(self) -> Sequence[RelayInfo]:
        return [_relay(each) for each in await self.collections.relay.find(sort=[("_id", 1)]).to_list()]

    @without_transaction
    async def all(self) -> Sequence[Lane]:
        return [_lane(each) for each in await self.collections.lane.find(sort=[("_id", 1)]).to_list()]

    async def take(
        self,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        lost: OnLeaseLost,
        gone: Collection[str] = (),
        now: datetime | None = None,
    ) -> Sequence[Lane]:
        if limit < 1:
            return []
        terms = Terms(lease, lost, gone, now)
        try:
            return await self.connections.run(
                lambda session: self._take(session, owner, limit, terms), patience=MEETING_SECONDS
            )
        except Contended:
            return await self._take_each(owner, limit, terms)

    async def _take_each(self, owner: str, limit: int, terms: Terms) -> Sequence[Lane]:
        """One by one: a lane that somebody's transaction holds, who may be dead, keeps nobody from the others."""
        taken: list[Lane] = []
        for lane in await self.all():
            if len(taken) == limit:
                break
            try:
                taken += await self.connections.run(
                    lambda session, lane=lane: self._take(session, owner, 1, terms, {"_id": lane.lane}),  # type: ignore[misc]  # a default of a lambda
                    patience=0,
                )
            except Contended:
                continue
        return taken

    async def _take(
        self,
        session: Session,
        owner: str,
        limit: int,
        terms: Terms,
        which: Document = {},  # noqa: B006 - never changed
    ) -> Sequence[Lane]:
        lease, lost, gone, now = terms
        at = await self.collections.clock(session, now)
        # R5: free, or its lease ran out by the server's clock, or its owner's process is gone.
        free = {**which, "$or": [{"owner": None}, {"lease_until": {"$lt": at}}, {"owner": among(gone)}]}
        found = await self.collections.lane.find(free, session=session, sort=[("_id", 1)], limit=limit).to_list()
        if not found:
            return []
        ids, until = [each["_id"] for each in found], at + lease
        mine_now = {"$set": {"owner": owner, "lease_until": until}, "$inc": {"epoch": 1}}
        await self.collections.lane.update_many({"_id": among(ids), **free}, mine_now, session=session)
        # Without a transaction another may have been quicker; an epoch is given once.
        held = mine(owner, {each["_id"]: each["epoch"] + 1 for each in found})
        taken = await self.collections.lane.find(held, session=session, sort=[("_id", 1)]).to_list()
        await self._let_go(session, [each["_id"] for each in taken], lost, at)
        return [_lane(each) for each in taken]

    async def _let_go(self, session: Session, lanes: Sequence[int], lost: OnLeaseLost, at: datetime) -> None:
        """R6: count an attempt for what an earlier owner had in flight here, and drop its claims, also mine. Marking
        them is what stops that owner's settle; what it had marked before is carried out as it said."""
        claims = await self.collections.claim.find(
            {"lane": among(lanes)}, {"seqs": 1, "mark": 1, "alone": 1}, session=session
        ).to_list()
        flying = [each for each in claims if each.get("mark") is None]
        await self._settling.mark(session, await self._lost(session, flying, lost, at), lost=True)
        marked = self.collections.claim.find({"_id": among([each["_id"] for each in claims])}, session=session)
        await self._settling.carry_out(session, await marked.to_list() if claims else [])
        if session is None:
            await self._holds.look_after_all({"lane": among(lanes)})

    async def _lost(
        self, session: Session, claims: Sequence[Document], lost: OnLeaseLost, at: datetime
    ) -> dict[int, Document]:
        """The mark of each of these claims, that were lost with their relay."""
        seqs = [seq for each in claims for seq in each["seqs"]]
        facts = {"_id": 0, "seq": 1, "key": 1, "attempts": 1, "lost": 1, "lane": 1}
        rows = await self.collections.outbox.find({"seq": among(seqs), **OPEN}, facts, session=session).to_list()
        marks: dict[int, Document] = {}
        for claim in claims:
            mine = [each for each in rows if each["seq"] in set(claim["seqs"])]
            lost_rows = [LostRow(each["seq"], each.get("key"), each["attempts"], each.get("lost", 0)) for each in mine]
            alone = claim["seqs"] if claim.get("alone") else ()
            verdicts, keys = after_a_crash(lost_rows, lost, alone)
            marks[claim["_id"]] = {"notes": notes(verdicts, places_of(mine), at, lost=True), "keys": sorted(keys)}
        return marks

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        if not lanes:
            return frozenset()
        until: object = {"$add": ["$$NOW", _milliseconds(lease)]} if now is None else bare(now) + lease
        return await self._renew(mine(owner, lanes), until)

    @without_transaction
    async def _renew(self, held: Document, until: object) -> frozenset[int]:
        """What is mine at this epoch after the write was so at the write: an epoch that was lost never comes back."""
        await self.collections.lane.update_many(held, [{"$set": {"lease_until": until}}])
        return frozenset([each["_id"] async for each in self.collections.lane.find(held, {"_id": 1})])

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        return await self._release(owner, lanes) if lanes else frozenset()

    @in_transaction
    async def _release(self, session: Session, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        """R24: only a lane with nothing in flight. A claim of it at the same moment writes the lane too: one of us waits."""
        busy = self.collections.claim.find({"lane": among(lanes)}, {"lane": 1}, session=session)
        in_flight = {each["lane"] async for each in busy}
        held = mine(owner, {lane: epoch for lane, epoch in lanes.items() if lane not in in_flight} or {-1: -1})
        free = [each["_id"] async for each in self.collections.lane.find(held, {"_id": 1}, session=session)]
        if free:
            nobody = {"$set": {"owner": None, "lease_until": None}}
            await self.collections.lane.update_many({"_id": among(free), **held}, nobody, session=session)
        return frozenset(free)


def _lane(found: Document) -> Lane:
    return Lane(found["_id"], found["epoch"], found["owner"], zoned(found["lease_until"]))


def _relay(found: Document) -> RelayInfo:
    return RelayInfo(
        owner=found["_id"],
        name=found["name"],
        host=found["host"],
        pid=found["pid"],
        version=found["version"],
        process=found.get("process", ""),
        seen_at=zoned(found["seen_at"]),
    )


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
