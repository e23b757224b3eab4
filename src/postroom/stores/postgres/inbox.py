"""The inbox on PostgreSQL. An async handler gets psycopg's AsyncConnection inside a transaction, a sync one its Connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus

from postroom.contracts.inbox import DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.stores.postgres.blocking_connections import BlockingConnections
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.statements import Statements
from postroom.stores.rows import (
    by_source,
    dead_of,
    dead_row,
    error_row,
    event_row,
    kept_source,
    known_of,
    known_parameters,
    query_parameters,
)
from postroom.stores.sql.parts import Part, in_transaction, single_statement


def _is_whole(connection: psycopg.Connection[Any] | Connection) -> bool:
    # After an error inside it, PostgreSQL answers COMMIT with a rollback, and calls that no error.
    return not connection.closed and connection.info.transaction_status == TransactionStatus.INTRANS


def _is_ended(connection: psycopg.Connection[Any] | Connection) -> bool:
    if connection.closed:
        return not connection.broken
    return connection.info.transaction_status == TransactionStatus.IDLE


@dataclass(slots=True)
class PostgresInboxTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    handle: Connection
    statements: Statements

    async def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        new = set[Identity]()
        for source, ids in by_source(events):
            facts = _facts(consumer, source, ids)
            cursor = await self.statements.run(self.handle, "remember", **facts)
            if cursor.rowcount == len(events):
                return set(events)  # the common case: which ones they are need not be read
            new.update(Identity(source, id_) for (id_,) in await cursor.fetchall())
        return new

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        for source, ids in by_source(events):
            await self.statements.run(self.handle, "unbury", **_facts(consumer, source, ids))

    def is_whole(self) -> bool:
        return _is_whole(self.handle)

    def is_ended(self) -> bool:
        return _is_ended(self.handle)

    def is_away(self) -> bool:
        return self.handle.broken


@dataclass(slots=True)
class BlockingPostgresTransaction:
    """The same for sync handlers."""

    handle: psycopg.Connection[tuple[Any, ...]]
    statements: Statements

    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        text, new = self.statements.texts["remember"], set[Identity]()
        for source, ids in by_source(events):
            cursor = self.handle.cursor(binary=True).execute(text, _facts(consumer, source, ids))
            if cursor.rowcount == len(events):
                return set(events)
            new.update(Identity(source, id_) for (id_,) in cursor.fetchall())
        return new

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        for source, ids in by_source(events):
            self.handle.execute(self.statements.texts["unbury"], _facts(consumer, source, ids))

    def is_whole(self) -> bool:
        return _is_whole(self.handle)

    def is_ended(self) -> bool:
        return _is_ended(self.handle)

    def is_away(self) -> bool:
        return self.handle.broken


def _facts(consumer: str, source: str, ids: Collection[UUID]) -> dict[str, Any]:
    return {"consumer": consumer, "source": kept_source(source), "ids": _in_turn(ids)}


def _in_turn(ids: Collection[UUID]) -> list[str]:
    """As `in_turn` has them, without dashes: PostgreSQL reads that too, and Python writes it in a third of the time."""
    return sorted(each.hex for each in ids)


class PostgresInbox(Part[Connection]):
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements)
        self._statements, self._handling = statements, connections.handling
        self._blocking = BlockingConnections(connections)

    def close(self) -> None:
        """Close the connections of sync handlers; the others are the store's."""
        self._blocking.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresInboxTransaction]:
        async with self._handling() as connection:
            yield PostgresInboxTransaction(connection, self._statements)

    @contextmanager
    def blocking(self) -> Iterator[BlockingPostgresTransaction]:
        with self._blocking.transaction() as connection:
            yield BlockingPostgresTransaction(connection, self._statements)

    @single_statement
    async def failed(self, connection: Connection, consumer: str, event: Identity, code: str, error: str) -> int:
        facts = {**event_row(consumer, event), **error_row(code, error)}
        rows = await self._rows(connection, "failed", **facts)
        return int(rows[0][0]) if rows else 0

    @in_transaction
    async def bury(
        self,
        connection: Connection,
        consumer: str,
        delivery: Delivery,
        code: str,
        error: str,
        *,
        committed: bool = False,
    ) -> None:
        facts = {**event_row(consumer, delivery.identity), **error_row(code, error)}
        if rows := await self._rows(connection, "give_up", **facts, committed=committed):
            await self._run(connection, "bury", **dead_row(consumer, delivery, rows[0][0], code, error))

    @single_statement
    async def known(self, connection: Connection, query: KnownQuery) -> Sequence[Known]:
        ids = _in_turn(query.ids) if query.ids else None
        facts = known_parameters(query) | {"ids": ids, "limit": query.limit}
        rows = await self._rows(connection, "known", **facts)
        return [known_of(row) for row in reversed(rows)]

    @single_statement
    async def dead(self, connection: Connection, query: DeadQuery) -> Sequence[DeadDelivery]:
        facts = query_parameters(query) | {"requeued": query.requeued, "limit": query.limit}
        return [dead_of(row) for row in await self._rows(connection, "dead", **facts)]

    @in_transaction
    async def requeue(self, connection: Connection, query: DeadQuery) -> int:
        rows = await self._rows(connection, "requeue", **query_parameters(query))
        for consumer, source, id_ in rows:
            await self._run(connection, "let_go_again", consumer=consumer, source=source, id=id_)
        return len(rows)

    @single_statement
    async def counts(self, connection: Connection) -> Mapping[str, Mapping[DeliveryState, int]]:
        counts: dict[str, dict[DeliveryState, int]] = {}
        for consumer, outcome, number in await self._rows(connection, "inbox_counts"):
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    @single_statement
    async def purge(self, connection: Connection, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        return int((await self._run(connection, "forget", consumer=consumer, before=before, limit=limit)).rowcount)
