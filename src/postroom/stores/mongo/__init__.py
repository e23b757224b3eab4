"""Postroom on MongoDB 5.0 and later, by PyMongo: a replica set, of which one node is enough; or without transactions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from postroom.config.tables import TableNames
from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.contracts.ops import Counts, Progress, Query, Record
from postroom.contracts.outbox import Claim, Settled, Settlement
from postroom.contracts.schema import Migration
from postroom.contracts.store import StoreCapabilities
from postroom.handles.mongo import translated
from postroom.message import Message
from postroom.stores.connection_names import OURS
from postroom.stores.mongo.collections import CollectionNames
from postroom.stores.mongo.lanes import Lanes, Terms
from postroom.stores.mongo.ops import Ops
from postroom.stores.mongo.outbox import OutboxFlow
from postroom.stores.mongo.schema import Schema
from postroom.stores.mongo.server import TRANSACTION_SECONDS, Server, Session
from postroom.stores.mongo.transaction import Later, MongoTransaction
from postroom.stores.mongo.url import address
from postroom.stores.mongo.watch import no_watch, watch


class MongoStore:
    """See `postroom.contracts.outbox` for what each method promises. Leases are by the server's clock."""

    def __init__(
        self, url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str = OURS
    ) -> None:
        self._tables = tables or TableNames()
        self._server = Server(address(url, self._tables), name)
        self._transactions = self._server.address.transactions
        self._shelves = CollectionNames(self._server, self._tables)
        self._schema = Schema(self._shelves, lanes)
        self._lanes, self._flow, self._ops = Lanes(self._shelves), OutboxFlow(self._shelves), Ops(self._shelves)

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            name="mongo",
            durable=True,
            shared=True,
            concurrent_writers=self._transactions,
            all_or_none=self._transactions,
            time_precision=timedelta(milliseconds=1),
            notices_commits=self._transactions,
            notices_relays=self._transactions,
        )

    async def close(self) -> None:
        await self._server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def migrate(self) -> Migration:
        return await self._server.ask(self._schema.migrate)

    async def check(self) -> None:
        await self._server.ask(self._schema.check)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MongoTransaction | Later]:
        await self._server.open()
        if not self._transactions:
            later = Later(self._shelves)
            yield later
            with self._server.translated():
                await later.write_all()
            return
        with self._server.translated():
            async with self._server.transaction(time.monotonic() + TRANSACTION_SECONDS) as session:
                handle = MongoTransaction(self._shelves, session)
                try:
                    yield handle
                finally:
                    handle.open = False

    async def put(self, messages: Sequence[Message]) -> None:
        await self._server.run(lambda tx: self._put(tx, messages))

    async def _put(self, session: Session, messages: Sequence[Message]) -> None:
        with translated(messages):
            await MongoTransaction(self._shelves, session).write(messages, self._tables)

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        await self._lanes.join(relay, now)

    async def leave(self, owner: str) -> None:
        await self._lanes.leave(owner)

    async def relays(self) -> Sequence[RelayInfo]:
        return await self._lanes.relays()

    async def lanes(self) -> Sequence[Lane]:
        return await self._lanes.lanes()

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
        return await self._lanes.take(owner, limit, Terms(lease, lost, gone, now))

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        return await self._lanes.renew(owner, lanes, lease, now)

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        return await self._lanes.release(owner, lanes)

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
        return await self._flow.claim(owner, lanes, limit, now, doubtful, alone)

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        return await self._flow.settle(settlements, now)

    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        return await self._flow.peek(lanes, now)

    async def watch(self, woken: Callable[[], None]) -> None:
        await (watch(self._shelves, woken) if self._transactions else no_watch(woken))

    async def counts(self, *, now: datetime | None = None) -> Counts:
        return await self._ops.counts(now)

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        return await self._ops.ids_between(first, last, limit)

    async def find(self, query: Query) -> Sequence[Record]:
        return await self._ops.find(query)

    async def requeue(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:  # noqa: ARG002 - no clock is needed
        return await self._ops.requeue(query, told)

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        return await self._ops.discard(query, now, told)
