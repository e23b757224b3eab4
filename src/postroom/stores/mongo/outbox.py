"""Messages on their way out: put, claim, settle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from postroom.config.tables import TableNames
from postroom.contracts.outbox import Claim, Settled, Settlement
from postroom.handles.mongo import translated
from postroom.message import Message
from postroom.stores.connections import OwnTransaction, handle_of
from postroom.stores.documents import documents
from postroom.stores.mongo.claim import Claiming, ForeignRowsFirst, Overtaken, anything
from postroom.stores.mongo.collections import Collections, Part, among, bare, in_transaction, without_transaction
from postroom.stores.mongo.connections import TRANSACTION_SECONDS, Connections, Document, Session
from postroom.stores.mongo.rows import ForeignRows, reserve
from postroom.stores.mongo.settle import RowPlace, Settling, notes
from postroom.stores.mongo.watch import no_watch, watch


class MongoOutbox(Part):
    """See `postroom.contracts.outbox` for what each method promises."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._claiming, self._settling = Claiming(collections), Settling(collections)
        self._foreign_rows = ForeignRows(collections)
        self._turn = nullcontext() if self.connections.address.transactions else asyncio.Lock()
        """Without transactions one claim at a time: the number of a lane is written before the claim, and in between a second
        claim of the same relay would find the lane free. A relay claims through one store, so this is enough. What another
        relay takes is told by the lane's epoch, and a claim whose answer was lost by its number."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[OwnTransaction]:
        connections = self.connections
        await connections.open()
        if not connections.address.transactions:
            later = Later(connections)
            async with handle_of(later.keep) as handle:
                yield handle
            with connections.translated():
                await later.write_all()
            return
        with connections.translated():
            async with (
                connections.transaction(time.monotonic() + TRANSACTION_SECONDS) as session,
                handle_of(partial(_write, connections, session)) as handle,
            ):
                yield handle

    @in_transaction
    async def put(self, session: Session, messages: Sequence[Message]) -> None:
        await _write(self.connections, session, messages, self.collections.tables)

    async def claim(
        self,
        owner: str,
        lanes: Mapping[int, int],
        *,
        limit: int,
        doubtful: Collection[int] = (),
        alone: bool = False,
        now: datetime | None = None,
    ) -> Sequence[Claim]:
        while True:
            try:
                async with self._turn:
                    return await self.connections.run(
                        lambda session: self._claiming.claim(session, owner, lanes, limit, now, doubtful, alone)
                    )
            except Overtaken:
                continue
            except ForeignRowsFirst:
                await self._foreign_rows.number()

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        # What was published as a whole, which is nearly everything, needs no transaction; the rest has one.
        whole = [each for each in settlements if each.is_published and not each.claim.held]
        rest = [each for each in settlements if not each.is_published or each.claim.held]
        there: list[int] = []
        if whole:
            seqs = {each.claim.id: [claimed.seq for claimed in each.claim.messages] for each in whole}
            at = None if now is None else bare(now)
            there += await self.connections.ask(lambda: self._settling.publish(seqs, at))
        if rest:
            there += await self._settle(rest, now)
        answers: dict[int, Settled] = dict.fromkeys(there, "settled")
        return answers | await self._why([each.claim for each in settlements if each.claim.id not in answers])

    @in_transaction
    async def _settle(self, session: Session, settlements: Sequence[Settlement], now: datetime | None) -> Sequence[int]:
        """R20: whoever takes the lane over marks the claim first, or has dropped it. Then nothing of it is written."""
        at = await self.collections.clock(session, now)
        there = await self._settling.mark(session, {each.claim.id: _mark(each, at) for each in settlements})
        await self._settling.carry_out(session, there)
        return [each["_id"] for each in there]

    async def _why(self, claims: Sequence[Claim]) -> dict[int, Settled]:
        """R21: no claim, and nobody took the lane since: this settle was carried out before. Else it is lost."""
        if not claims:
            return {}
        lanes = {"_id": among([claim.lane for claim in claims])}
        found = await self.connections.ask(lambda: self.collections.lane.find(lanes, {"epoch": 1}).to_list())
        epochs = {each["_id"]: each["epoch"] for each in found}
        return {claim.id: "already" if epochs.get(claim.lane) == claim.epoch else "lost" for claim in claims}

    @without_transaction
    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        return await anything(self.collections, lanes, now)

    async def watch(self, woken: Callable[[], None]) -> None:
        if self.connections.address.transactions:
            await watch(self.collections, woken)
        else:
            await no_watch(woken)


@dataclass(slots=True)
class Later:
    """What stands in for a transaction where there are none: what is put is written at the end of the block, or not at all
    when that ends with an error. Only a process that dies while it is written leaves the first of it."""

    connections: Connections
    waiting: list[tuple[Sequence[Message], TableNames]] = field(default_factory=list)

    async def keep(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Keep the messages for the end of the block."""
        self.waiting.append((messages, tables))

    async def write_all(self) -> None:
        """Write what was put, in that order."""
        for messages, tables in self.waiting:
            await _write(self.connections, None, messages, tables)


async def _write(connections: Connections, session: Session, messages: Sequence[Message], tables: TableNames) -> None:
    if messages:
        collections = Collections(connections, tables)
        counter = await reserve(collections, len(messages))
        with translated(messages):
            await collections.outbox.insert_many(documents(messages, counter), session=session)


def _mark(settlement: Settlement, at: datetime) -> Document:
    """What became of each message, and the keys that have to be looked after."""
    claim = settlement.claim
    places = {claimed.seq: RowPlace(claimed.message.key, claim.lane) for claimed in claim.messages}
    return {
        "notes": notes(settlement.own_verdicts, places, at),
        "keys": sorted(claim.held | settlement.stopped_keys),
    }
