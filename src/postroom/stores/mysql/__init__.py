"""Postroom on MariaDB 10.6 and MySQL 8.0.17 or later, by asyncmy."""

from __future__ import annotations

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
from postroom.message import Message
from postroom.stores.chunks import in_chunks
from postroom.stores.connection_names import OURS
from postroom.stores.mysql.connection import Connection
from postroom.stores.mysql.connections import Connections
from postroom.stores.mysql.lanes import Lanes
from postroom.stores.mysql.ops import Ops
from postroom.stores.mysql.outbox import OutboxFlow
from postroom.stores.mysql.schema import Schema
from postroom.stores.mysql.statements import Statements
from postroom.stores.mysql.transaction import MySQLTransaction
from postroom.stores.mysql.watch import watch
from postroom.urls import redact


class MySQLStore:
    """See `postroom.contracts.outbox` for what each method promises. Leases are by the server's clock."""

    def __init__(
        self, url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str = OURS
    ) -> None:
        self._url = url
        self._tables = tables or TableNames()
        self._connections = Connections(url, self._tables, name)
        self._statements = Statements(self._tables)
        self._schema = Schema(self._tables, lanes)
        self._flow = OutboxFlow(self._statements)
        self._lanes, self._ops = Lanes(self._statements), Ops(self._statements)

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            name="mysql",
            durable=True,
            shared=True,
            concurrent_writers=True,
            all_or_none=True,
            time_precision=timedelta(microseconds=1),
            notices_commits=False,
            notices_relays=False,
        )

    async def close(self) -> None:
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def migrate(self) -> Migration:
        return await self._connections.run(self._migrate)

    async def _migrate(self, connection: Connection) -> Migration:
        version = self._connections.version_of(connection)
        return await self._schema.migrate(connection, version, redact(self._url))

    async def check(self) -> None:
        await self._connections.run(lambda tx: self._schema.check(tx, redact(self._url)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MySQLTransaction]:
        async with self._connections.transaction() as connection:
            handle = MySQLTransaction(connection)
            try:
                yield handle
            finally:
                handle.open = False

    async def put(self, messages: Sequence[Message]) -> None:
        await self._connections.run(lambda tx: MySQLTransaction(tx).write(messages, self._tables))

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        await self._connections.run(lambda tx: self._lanes.join(tx, relay, now))

    async def leave(self, owner: str) -> None:
        await self._connections.run(lambda tx: self._lanes.leave(tx, owner))

    async def relays(self) -> Sequence[RelayInfo]:
        return await self._connections.ask(self._lanes.relays)

    async def lanes(self) -> Sequence[Lane]:
        return await self._connections.ask(self._lanes.lanes)

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
        return await self._connections.run(lambda tx: self._lanes.take(tx, owner, limit, lease, lost, gone, now))

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        return await self._connections.run(lambda tx: self._lanes.renew(tx, owner, lanes, lease, now))

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        return await self._connections.run(lambda tx: self._lanes.release(tx, owner, lanes))

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
        return await self._connections.run(lambda tx: self._flow.claim(tx, owner, lanes, limit, now, doubtful, alone))

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        return await self._connections.run(lambda tx: self._flow.settle(tx, settlements, now))

    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        return await self._connections.ask(lambda tx: self._flow.peek(tx, lanes, now))

    async def watch(self, woken: Callable[[], None]) -> None:
        await watch(woken)

    async def counts(self, *, now: datetime | None = None) -> Counts:
        return await self._connections.run(lambda tx: self._ops.counts(tx, now))

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        return await self._connections.run(lambda tx: self._ops.ids_between(tx, first, last, limit))

    async def find(self, query: Query) -> Sequence[Record]:
        return await self._connections.run(lambda tx: self._ops.find(tx, query))

    async def requeue(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:  # noqa: ARG002 - no clock is needed
        top = await self._connections.ask(self._ops.top)
        return await in_chunks(
            top, lambda chunk: self._connections.run(lambda tx: self._ops.requeue(tx, query, chunk)), told
        )

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        top = await self._connections.ask(self._ops.top)
        return await in_chunks(
            top, lambda chunk: self._connections.run(lambda tx: self._ops.discard(tx, query, chunk, now)), told
        )
