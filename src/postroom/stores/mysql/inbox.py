"""The inbox on MariaDB and MySQL. An async handler gets asyncmy's connection inside a transaction, a sync one PyMySQL's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Self

from postroom.config.tables import TableNames
from postroom.contracts.inbox import DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.stores.inbox_rows import (
    dead_of,
    dead_row,
    error_row,
    event_row,
    in_turn,
    known_of,
    known_parameters,
    query_parameters,
)
from postroom.stores.mysql.blocking_connections import BlockingConnections
from postroom.stores.mysql.connection import Connection
from postroom.stores.mysql.connections import Connections
from postroom.stores.mysql.inbox_connections import HandlingConnections
from postroom.stores.mysql.inbox_rows import BlockingMySQLTransaction, MySQLInboxTransaction
from postroom.stores.mysql.ops import EVERYTHING
from postroom.stores.mysql.parameters import many, text_of
from postroom.stores.mysql.schema import Schema
from postroom.stores.mysql.statements import INBOX_FILES, Statements
from postroom.stores.mysql.url import MySQLUrl
from postroom.urls import redact


class MySQLInbox:
    """See `postroom.contracts.inbox` for what each method promises."""

    name = "mysql"

    def __init__(self, url: str, *, tables: TableNames | None = None) -> None:
        self._url, self._tables = url, tables or TableNames()
        self._statements = Statements(self._tables, INBOX_FILES)
        self._run, self._rows = self._statements.run, self._statements.rows
        self._connections = Connections(url, self._tables)
        self._handling = HandlingConnections(MySQLUrl.of(url), self._tables)
        self._blocking = BlockingConnections(MySQLUrl.of(url), self._tables)

    async def check(self) -> None:
        schema = Schema(self._tables, None)
        await self._connections.run(lambda tx: schema.check(tx, redact(self._url)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MySQLInboxTransaction]:
        async with self._handling.transaction() as connection:
            yield MySQLInboxTransaction(connection, self._handling, self._statements)

    @contextmanager
    def blocking(self) -> Iterator[BlockingMySQLTransaction]:
        with self._blocking.transaction() as connection:
            yield BlockingMySQLTransaction(connection, self._blocking, self._statements)

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        row = event_row(consumer, event)

        async def failed(tx: Connection) -> int:
            await self._run(tx, "failed", **row, **error_row(code, error))
            rows = await self._rows(tx, "attempts_made", **row, outcome="failing")
            return int(rows[0][0]) if rows else 0

        return await self._connections.run(failed)

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str, *, committed: bool = False) -> None:
        row = event_row(consumer, delivery.identity)

        async def bury(tx: Connection) -> None:
            await self._run(tx, "give_up", **row, **error_row(code, error), committed=committed)
            if rows := await self._rows(tx, "attempts_made", **row, outcome="dead"):
                await self._run(tx, "bury", **dead_row(consumer, delivery, rows[0][0], code, error))

        await self._connections.run(bury)

    async def known(self, query: KnownQuery) -> Sequence[Known]:
        ids = {"any_id": not query.ids, "ids": many(in_turn(query.ids))}
        facts = known_parameters(query) | {"limit": query.limit or EVERYTHING}
        rows = await self._connections.ask(lambda tx: self._rows(tx, "known", **ids, **facts))
        return [known_of(row) for row in reversed(rows)]

    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        facts = _parameters(query) | {"requeued": query.requeued, "limit": query.limit or EVERYTHING}
        rows = await self._connections.ask(lambda tx: self._rows(tx, "dead", **facts))
        return [dead_of(row) for row in rows]

    async def requeue(self, query: DeadQuery) -> int:
        async def requeue(tx: Connection) -> int:
            rows = await self._rows(tx, "to_requeue", **_parameters(query))
            await self._run(tx, "mark_requeued", rows=many(row for row, *_ in rows))
            for _, consumer, source, id_ in rows:
                await self._run(tx, "let_go_again", consumer=consumer, source=source, id=id_)
            return len(rows)

        return await self._connections.run(requeue)

    async def counts(self) -> Mapping[str, Mapping[DeliveryState, int]]:
        rows = await self._connections.ask(lambda tx: self._rows(tx, "inbox_counts"))
        counts: dict[str, dict[DeliveryState, int]] = {}
        for consumer, outcome, number in rows:
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        async def forget(tx: Connection) -> int:
            facts = {"consumer": consumer, "before": text_of(before), "limit": limit}
            return int((await self._run(tx, "forget", **facts)).rowcount)

        return await self._connections.run(forget)

    async def close(self) -> None:
        await self._connections.close()
        await self._handling.close()
        self._blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _parameters(query: DeadQuery) -> dict[str, Any]:
    facts = query_parameters(query)
    return facts | {"any_id": not query.ids, "ids": many(facts["ids"] or ())}
