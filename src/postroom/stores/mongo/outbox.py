"""Messages on their way out: claim, settle."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

from postroom.contracts.outbox import Claim, Settled, Settlement
from postroom.stores.mongo.claim import Claiming, ForeignRowsFirst
from postroom.stores.mongo.claim_state import anything
from postroom.stores.mongo.claim_without_transactions import Overtaken
from postroom.stores.mongo.collections import CollectionNames, among, bare
from postroom.stores.mongo.foreign_rows import ForeignRows
from postroom.stores.mongo.server import Document, Session
from postroom.stores.mongo.settle import Settling
from postroom.stores.mongo.updates import RowPlace, notes


class OutboxFlow:
    """Each method may be repeated."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves, self._server = shelves, shelves.server
        self._posting, self._claiming = Settling(shelves), Claiming(shelves)
        self._strangers = ForeignRows(shelves)
        self._turn = nullcontext() if self._server.address.transactions else asyncio.Lock()
        """Without transactions one claim at a time: the number of a lane is written before the claim, and in between a second
        claim of the same relay would find the lane free. A relay claims through one store, so this is enough. What another
        relay takes is told by the lane's epoch, and a claim whose answer was lost by its number."""

    async def claim(
        self,
        owner: str,
        lanes: Mapping[int, int],
        limit: int,
        now: datetime | None,
        doubtful: Collection[int] = (),
        alone: bool = False,
    ) -> Sequence[Claim]:
        while True:
            try:
                async with self._turn:
                    return await self._server.run(
                        lambda tx: self._claiming.claim(tx, owner, lanes, limit, now, doubtful, alone)
                    )
            except Overtaken:
                continue
            except ForeignRowsFirst:
                with self._server.translated():
                    await self._strangers.welcome()

    async def settle(self, settlements: Sequence[Settlement], now: datetime | None) -> Mapping[int, Settled]:
        """What was published as a whole, which is nearly everything, needs no transaction; the rest has one."""
        whole = [each for each in settlements if each.is_published and not each.claim.held]
        rest = [each for each in settlements if not each.is_published or each.claim.held]
        there: list[int] = []
        if whole:
            seqs = {each.claim.id: [claimed.seq for claimed in each.claim.messages] for each in whole}
            there += await self._server.ask(lambda: self._posting.publish(seqs, None if now is None else bare(now)))
        if rest:
            there += await self._server.run(lambda tx: self._settle(tx, rest, now))
        answers: dict[int, Settled] = dict.fromkeys(there, "settled")
        return answers | await self._why([each.claim for each in settlements if each.claim.id not in answers])

    async def _settle(self, session: Session, settlements: Sequence[Settlement], now: datetime | None) -> Sequence[int]:
        """R20: whoever takes the lane over marks the claim first, or has dropped it. Then nothing of it is written."""
        at = await self._shelves.clock(session, now)
        there = await self._posting.mark(session, {each.claim.id: _mark(each, at) for each in settlements})
        await self._posting.carry_out(session, there)
        return [each["_id"] for each in there]

    async def _why(self, claims: Sequence[Claim]) -> dict[int, Settled]:
        """R21: no claim, and nobody took the lane since: this settle was carried out before. Else it is lost."""
        if not claims:
            return {}
        lanes = {"_id": among([claim.lane for claim in claims])}
        found = await self._server.ask(lambda: self._shelves.lane.find(lanes, {"epoch": 1}).to_list())
        epochs = {each["_id"]: each["epoch"] for each in found}
        return {claim.id: "already" if epochs.get(claim.lane) == claim.epoch else "lost" for claim in claims}

    async def peek(self, lanes: Collection[int], now: datetime | None) -> bool:
        return await self._server.ask(lambda: anything(self._shelves, lanes, now))


def _mark(settlement: Settlement, at: datetime) -> Document:
    """What became of each message, and the keys that have to be looked after."""
    claim = settlement.claim
    places = {claimed.seq: RowPlace(claimed.message.key, claim.lane) for claimed in claim.messages}
    return {
        "notes": notes(settlement.own_verdicts, places, at),
        "keys": sorted(claim.held | settlement.stopped_keys),
    }
