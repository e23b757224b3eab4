"""Messages on their way out: claim, settle, reconcile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from pymongo.errors import PyMongoError

from postroom.store import Claim, Settled, Settlement, Verdict
from postroom.stores.mongo.books import Shelves, among, bare
from postroom.stores.mongo.claiming import Claiming, LeftoversFirst, StrangersFirst
from postroom.stores.mongo.server import Session
from postroom.stores.mongo.signs import anything
from postroom.stores.mongo.strangers import Strangers
from postroom.stores.mongo.verdicts import Place, Verdicts


class NotAllThere(Exception):
    """Some of the claims to settle are gone: which, the next try finds out before it writes."""


class Flow:
    """Each method is a transaction."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves, self._server = shelves, shelves.server
        self._verdicts = Verdicts(shelves)
        self._claiming = Claiming(shelves, self._verdicts)
        self._strangers = Strangers(shelves)

    async def claim(self, owner: str, lanes: Mapping[int, int], limit: int, now: datetime | None) -> Sequence[Claim]:
        while True:
            try:
                return await self._server.run(lambda tx: self._claiming.claim(tx, owner, lanes, limit, now))
            except StrangersFirst:
                with self._server.translated():
                    await self._strangers.welcome()
            except LeftoversFirst as met:
                with self._server.translated():
                    await self._verdicts.tidy(met.seqs)

    async def settle(self, settlements: Sequence[Settlement], now: datetime | None) -> Mapping[int, Settled]:
        if not settlements:
            return {}
        try:
            answers = await self._server.run(lambda tx: self._settle(tx, settlements, now, careful=False))
        except NotAllThere:
            answers = await self._server.run(lambda tx: self._settle(tx, settlements, now, careful=True))
        done = (each.claim for each in settlements if each.is_published and answers[each.claim.id] == "settled")
        if seqs := [claimed.seq for claim in done for claimed in claim.messages]:
            # Settled it is, whatever becomes of this.
            with suppress(PyMongoError):
                await self._verdicts.tidy(seqs)
        return answers

    async def _settle(
        self, session: Session, settlements: Sequence[Settlement], now: datetime | None, *, careful: bool
    ) -> Mapping[int, Settled]:
        fenced = await self._fence(session, [each.claim.id for each in settlements], careful=careful)
        there = [each for each in settlements if each.claim.id in fenced]
        whole = [claimed.seq for each in there if each.is_published for claimed in each.claim.messages]
        if whole:
            await self._verdicts.publish(session, whole, None if now is None else bare(now))
        rest = [each for each in there if not each.is_published]
        if rest:
            await self._record(session, rest, await self._shelves.clock(session, now))
        await self._verdicts.look_after(session, _touched(there))
        gone = [each.claim for each in settlements if each.claim.id not in fenced]
        answers: dict[int, Settled] = dict.fromkeys(fenced, "settled")
        return answers | await self._why(session, gone)

    async def _fence(self, session: Session, ids: Sequence[int], *, careful: bool) -> list[int]:
        """R20: whoever takes the lane over deletes the claim. Without it, nothing of this settle is written."""
        books = self._shelves.claim
        there = [each["_id"] async for each in books.find({"_id": among(ids)}, {}, session=session)] if careful else ids
        if there:
            deleted = await books.delete_many({"_id": among(there)}, session=session)
            if deleted.deleted_count != len(there):
                raise NotAllThere
        return list(there)

    async def _record(self, session: Session, settlements: Sequence[Settlement], at: datetime) -> None:
        verdicts: dict[int, Verdict] = {}
        places: dict[int, Place] = {}
        for each in settlements:
            verdicts |= each.own_verdicts
            places |= {claimed.seq: Place(claimed.message.key, each.claim.lane) for claimed in each.claim.messages}
        await self._verdicts.record(session, verdicts, places, at)

    async def _why(self, session: Session, claims: Sequence[Claim]) -> dict[int, Settled]:
        """R21: no claim, and nobody took the lane since: this settle was carried out before. Else it is lost."""
        if not claims:
            return {}
        found = self._shelves.lane.find({"_id": among([claim.lane for claim in claims])}, {"epoch": 1}, session=session)
        epochs = {each["_id"]: each["epoch"] async for each in found}
        return {claim.id: "already" if epochs.get(claim.lane) == claim.epoch else "lost" for claim in claims}

    async def peek(self, lanes: Collection[int], now: datetime | None) -> bool:
        return await self._server.ask(lambda: anything(self._shelves, lanes, now))

    async def reconcile(self, owner: str, lanes: Mapping[int, int], held: Collection[int]) -> int:
        orphans = [{"lane": lane, "epoch": epoch} for lane, epoch in lanes.items()]
        if not orphans:
            return 0
        query = {"owner": owner, "$or": orphans, "_id": {"$nin": list(held)}}
        dropped = await self._server.ask(lambda: self._shelves.claim.delete_many(query))
        return dropped.deleted_count


def _touched(settlements: Sequence[Settlement]) -> set[str]:
    """The keys that have to be looked after."""
    keys: set[str] = set()
    for each in settlements:
        keys |= each.claim.held
        if not each.is_published:
            keys |= each.stopped_keys
    return keys
