"""The inbox on PostgreSQL. An async handler gets psycopg's AsyncConnection inside a transaction, a sync one its Connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus

from postroom.inbox_store import Outcome, Parked, ParkedQuery
from postroom.stores._inbox import park_row, parked_of, query_parameters, shortened
from postroom.stores.postgres.blocking import BlockingConnections
from postroom.stores.postgres.connections import Connection, Connections
from postroom.stores.postgres.schema import Schema
from postroom.stores.postgres.statements import INBOX_FILES, Statements
from postroom.tables import TableNames
from postroom.transport import Delivery
from postroom.urls import redact


def _is_whole(connection: psycopg.Connection[Any] | Connection) -> bool:
    # After an error inside it, PostgreSQL answers COMMIT with a rollback, and calls that no error.
    return connection.info.transaction_status == TransactionStatus.INTRANS


@dataclass(slots=True)
class PostgresInboxTransaction:
    """See `postroom.inbox_store` for what each method promises."""

    handle: Connection
    statements: Statements

    async def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        cursor = await self.statements.run(self.handle, "remember", consumer=consumer, ids=_in_turn(ids))
        if cursor.rowcount == len(ids):
            return set(ids)  # the common case: which ones they are need not be read
        return {row[0] for row in await cursor.fetchall()}

    async def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        await self.statements.run(self.handle, "unpark", consumer=consumer, ids=_in_turn(ids))

    def is_whole(self) -> bool:
        return _is_whole(self.handle)

    def is_away(self) -> bool:
        return self.handle.closed


@dataclass(slots=True)
class BlockingPostgresTransaction:
    """The same for sync handlers."""

    handle: psycopg.Connection[tuple[Any, ...]]
    statements: Statements

    def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        text = self.statements.texts["remember"]
        cursor = self.handle.cursor(binary=True).execute(text, {"consumer": consumer, "ids": _in_turn(ids)})
        return set(ids) if cursor.rowcount == len(ids) else {row[0] for row in cursor.fetchall()}

    def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        self.handle.execute(self.statements.texts["unpark"], {"consumer": consumer, "ids": _in_turn(ids)})

    def is_whole(self) -> bool:
        return _is_whole(self.handle)

    def is_away(self) -> bool:
        return self.handle.closed


def _in_turn(ids: Collection[UUID]) -> list[str]:
    """As `in_turn` has them, without dashes: PostgreSQL reads that too, and Python writes it in a third of the time."""
    return sorted(each.hex for each in ids)


class PostgresInbox:
    """See `postroom.inbox_store` for what each method promises."""

    name = "postgres"

    def __init__(self, url: str, *, tables: TableNames | None = None) -> None:
        self._url, self._tables = url, tables or TableNames()
        self._statements = Statements(self._tables, INBOX_FILES)
        self._connections = Connections(url, self._tables)
        self._blocking = BlockingConnections(url, self._connections)

    async def check(self) -> None:
        schema = Schema(self._tables, None)
        await self._connections.run(lambda tx: schema.check(tx, redact(self._url)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresInboxTransaction]:
        async with self._connections.handling() as connection:
            yield PostgresInboxTransaction(connection, self._statements)

    @contextmanager
    def blocking(self) -> Iterator[BlockingPostgresTransaction]:
        with self._blocking.transaction() as connection:
            yield BlockingPostgresTransaction(connection, self._statements)

    async def failed(self, consumer: str, id: UUID, code: str, error: str) -> int:
        facts = {"consumer": consumer, "id": id, "code": code, "error": shortened(error)}
        rows = await self._connections.ask(lambda tx: self._statements.rows(tx, "failed", **facts))
        return int(rows[0][0]) if rows else 0

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str) -> None:
        async def bury(tx: Connection) -> None:
            facts = {"consumer": consumer, "id": delivery.message.id, "code": code, "error": shortened(error)}
            if rows := await self._statements.rows(tx, "give_up", **facts):
                await self._statements.run(tx, "park", **park_row(consumer, delivery, rows[0][0], code, error))

        await self._connections.run(bury)

    async def parked(self, query: ParkedQuery) -> Sequence[Parked]:
        facts = query_parameters(query) | {"requeued": query.requeued, "limit": query.limit}
        rows = await self._connections.ask(lambda tx: self._statements.rows(tx, "parked", **facts))
        return [parked_of(row) for row in rows]

    async def requeue(self, query: ParkedQuery) -> int:
        async def requeue(tx: Connection) -> int:
            rows = await self._statements.rows(tx, "requeue", **query_parameters(query))
            for consumer, id_ in rows:
                await self._statements.run(tx, "let_go_again", consumer=consumer, id=id_)
            return len(rows)

        return await self._connections.run(requeue)

    async def counts(self) -> Mapping[str, Mapping[Outcome, int]]:
        rows = await self._connections.ask(lambda tx: self._statements.rows(tx, "inbox_counts"))
        counts: dict[str, dict[Outcome, int]] = {}
        for consumer, outcome, number in rows:
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    async def purge(self, before: datetime, *, limit: int = 10_000) -> int:
        cursor = await self._connections.ask(lambda tx: self._statements.run(tx, "forget", before=before, limit=limit))
        return cursor.rowcount

    async def close(self) -> None:
        await self._connections.close()
        self._blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
