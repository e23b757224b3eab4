"""Postroom on SQLite: one file, one writer at a time, nothing to install.

Write-ahead logging, `synchronous = FULL`, `BEGIN IMMEDIATE`, a patient busy time-out; one thread owns the connection and
a transaction is one hop to it. One host only: the file must be on a local disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self
from uuid import UUID

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.contracts.ops import Counts, Progress, Query, Record
from postroom.contracts.outbox import Claim, Settled, Settlement
from postroom.contracts.schema import Migration
from postroom.contracts.store import StoreCapabilities
from postroom.errors import ConfigError
from postroom.message import Message
from postroom.stores.chunks import in_chunks
from postroom.stores.sql.times import microseconds
from postroom.stores.sqlite.lanes import Lanes
from postroom.stores.sqlite.ops import Ops
from postroom.stores.sqlite.outbox import OutboxFlow
from postroom.stores.sqlite.schema import Schema, warn_of_wal_reset_defect
from postroom.stores.sqlite.statements import Statements
from postroom.stores.sqlite.transaction import SQLiteTransaction
from postroom.stores.sqlite.watch import watch
from postroom.stores.sqlite.writer import Writer


class SQLiteStore:
    """See `postroom.contracts.outbox` for what each method promises. SQLite's clock is this machine's."""

    def __init__(self, path: str | Path, *, tables: TableNames | None = None, lanes: int | None = None) -> None:
        if str(path) in ("", ":memory:"):
            raise ConfigError("SQLite needs a file, such as sqlite:///shop.db; for a store in memory use memory://.")
        self.path = Path(path)
        self._tables = tables or TableNames()
        if self._tables.schema is not None:
            raise ConfigError(f"SQLite has no schemas: leave out the schema name {self._tables.schema!r}.")
        self._writer = Writer(self.path, self._tables)
        self._statements = Statements(self._tables)
        self._schema = Schema(self._tables, lanes)
        self._lanes, self._flow, self._ops = (
            Lanes(self._statements),
            OutboxFlow(self._statements),
            Ops(self._statements),
        )
        warn_of_wal_reset_defect()

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            name="sqlite",
            durable=True,
            shared=True,
            concurrent_writers=False,
            all_or_none=True,
            time_precision=timedelta(microseconds=1),
            notices_commits=True,
            notices_relays=True,
        )

    async def close(self) -> None:
        await self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def migrate(self) -> Migration:
        await self._writer.create()
        store = f"sqlite:///{self.path}"
        return await self._writer.run(lambda tx: self._schema.migrate(tx, microseconds(utcnow()), store))

    async def check(self) -> None:
        await self._writer.read(lambda tx: self._schema.check(tx, f"sqlite:///{self.path}"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteTransaction]:
        async with self._writer.transaction():
            handle = SQLiteTransaction(self._writer)
            try:
                yield handle
            finally:
                handle.open = False

    async def put(self, messages: Sequence[Message]) -> None:
        async with self.transaction() as handle:
            await handle.write(messages, self._tables)

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        await self._writer.run(lambda tx: self._lanes.join(tx, relay, now or utcnow()))

    async def leave(self, owner: str) -> None:
        await self._writer.run(lambda tx: self._lanes.leave(tx, owner))

    async def relays(self) -> Sequence[RelayInfo]:
        return await self._writer.read(self._lanes.relays)

    async def lanes(self) -> Sequence[Lane]:
        return await self._writer.read(self._lanes.lanes)

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
        return await self._writer.run(lambda tx: self._lanes.take(tx, owner, limit, lease, lost, gone, now or utcnow()))

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        return await self._writer.run(lambda tx: self._lanes.renew(tx, owner, lanes, lease, now or utcnow()))

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        return await self._writer.run(lambda tx: self._lanes.release(tx, owner, lanes))

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
        return await self._writer.run(
            lambda tx: self._flow.claim(tx, owner, lanes, limit, now or utcnow(), doubtful, alone)
        )

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        return await self._writer.run(lambda tx: self._flow.settle(tx, settlements, now or utcnow()))

    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        return await self._writer.read(lambda tx: self._flow.peek(tx, lanes, now or utcnow()))

    async def watch(self, woken: Callable[[], None]) -> None:
        await watch(self.path, woken)

    async def counts(self, *, now: datetime | None = None) -> Counts:
        return await self._writer.read(lambda tx: self._ops.counts(tx, now or utcnow()))

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        return await self._writer.read(lambda tx: self._ops.ids_between(tx, first, last, limit))

    async def find(self, query: Query) -> Sequence[Record]:
        return await self._writer.read(lambda tx: self._ops.find(tx, query))

    async def requeue(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:  # noqa: ARG002 - no clock is needed
        top = await self._writer.read(self._ops.top)
        return await in_chunks(
            top, lambda chunk: self._writer.run(lambda tx: self._ops.requeue(tx, query, chunk)), told
        )

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        top = await self._writer.read(self._ops.top)
        return await in_chunks(
            top, lambda chunk: self._writer.run(lambda tx: self._ops.discard(tx, query, chunk, now or utcnow())), told
        )
