"""The inbox on SQLite. A handler, sync or async, gets a `sqlite3.Connection` inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from postroom.clock import utcnow
from postroom.contracts.inbox import DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.stores.inbox_rows import (
    by_source,
    dead_of,
    dead_row,
    error_row,
    event_row,
    in_turn,
    kept_source,
    known_of,
    known_parameters,
    query_parameters,
)
from postroom.stores.sql.times import microseconds, moment
from postroom.stores.sqlite.blocking_connections import BlockingConnections, is_open
from postroom.stores.sqlite.connections import Writer
from postroom.stores.sqlite.statements import NO_LIMIT, Part, Statements, in_transaction, many, reading


def _now() -> int:
    return microseconds(utcnow())


@dataclass(slots=True)
class BlockingSQLiteTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    handle: sqlite3.Connection
    statements: Statements
    writer: Writer

    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        new = set[Identity]()
        for source, ids in by_source(events):
            facts = {"consumer": consumer, "source": kept_source(source), "ids": many(in_turn(ids))}
            new.update(Identity(source, UUID(id_)) for (id_,) in self._run("remember", **facts, now=_now()))
        return new

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        for source, ids in by_source(events):
            self._run("unbury", consumer=consumer, source=kept_source(source), ids=many(in_turn(ids)))

    def _run(self, name: str, **facts: Any) -> list[tuple[Any, ...]]:
        try:
            return self.statements.run(self.handle, name, **facts).fetchall()
        except sqlite3.Error as exc:
            raise self.writer.translated(exc) from exc

    def is_whole(self) -> bool:
        return is_open(self.handle) and self.handle.in_transaction

    def is_ended(self) -> bool:
        return not self.is_whole()

    def is_away(self) -> bool:
        return False


@dataclass(slots=True)
class SQLiteInboxTransaction:
    """The same, awaited: each statement takes microseconds, and this transaction holds the lock already."""

    blocking: BlockingSQLiteTransaction

    @property
    def handle(self) -> sqlite3.Connection:
        return self.blocking.handle

    async def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        return self.blocking.remember(consumer, events)

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self.blocking.unbury(consumer, events)

    def is_whole(self) -> bool:
        return self.blocking.is_whole()

    def is_ended(self) -> bool:
        return self.blocking.is_ended()

    def is_away(self) -> bool:
        return False


class SQLiteInbox(Part):
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, writer: Writer, statements: Statements) -> None:
        super().__init__(writer, statements)
        self._statements, self._connections = statements, BlockingConnections(writer)

    def close(self) -> None:
        """Close the connections of handlers; the writer is the store's."""
        self._connections.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteInboxTransaction]:
        async with self._connections.transaction() as connection:
            yield SQLiteInboxTransaction(BlockingSQLiteTransaction(connection, self._statements, self.writer))

    @contextmanager
    def blocking(self) -> Iterator[BlockingSQLiteTransaction]:
        with self._connections.blocking() as connection:
            yield BlockingSQLiteTransaction(connection, self._statements, self.writer)

    @in_transaction
    def failed(self, connection: sqlite3.Connection, consumer: str, event: Identity, code: str, error: str) -> int:
        facts = {**event_row(consumer, event), **error_row(code, error)}
        rows = self._run(connection, "failed", **facts, now=_now()).fetchall()
        return int(rows[0][0]) if rows else 0

    @in_transaction
    def bury(
        self,
        connection: sqlite3.Connection,
        consumer: str,
        delivery: Delivery,
        code: str,
        error: str,
        *,
        committed: bool = False,
    ) -> None:
        facts = {**event_row(consumer, delivery.identity), **error_row(code, error)}
        if row := self._run(connection, "give_up", **facts, committed=committed, now=_now()).fetchone():
            self._run(connection, "bury", **dead_row(consumer, delivery, row[0], code, error), now=_now())

    @reading
    def known(self, connection: sqlite3.Connection, query: KnownQuery) -> Sequence[Known]:
        ids = many(in_turn(query.ids)) if query.ids else None
        facts = known_parameters(query) | {"ids": ids, "limit": query.limit or NO_LIMIT}
        rows = self._run(connection, "known", **facts).fetchall()
        return [known_of(row, moment) for row in reversed(rows)]

    @reading
    def dead(self, connection: sqlite3.Connection, query: DeadQuery) -> Sequence[DeadDelivery]:
        facts = _parameters(query) | {"requeued": query.requeued, "limit": query.limit or NO_LIMIT}
        return [dead_of(row, moment) for row in self._run(connection, "dead", **facts)]

    @in_transaction
    def requeue(self, connection: sqlite3.Connection, query: DeadQuery) -> int:
        rows = self._run(connection, "requeue", **_parameters(query), now=_now()).fetchall()
        for consumer, source, id_ in rows:
            self._run(connection, "let_go_again", consumer=consumer, source=source, id=id_, now=_now())
        return len(rows)

    @reading
    def counts(self, connection: sqlite3.Connection) -> Mapping[str, Mapping[DeliveryState, int]]:
        counts: dict[str, dict[DeliveryState, int]] = {}
        for consumer, outcome, number in self._run(connection, "inbox_counts"):
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    @in_transaction
    def purge(self, connection: sqlite3.Connection, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        facts = {"consumer": consumer, "before": microseconds(before), "limit": limit}
        return self._run(connection, "forget", **facts).rowcount


def _parameters(query: DeadQuery) -> dict[str, Any]:
    facts = query_parameters(query)
    return facts | {"ids": None if facts["ids"] is None else many(facts["ids"])}
