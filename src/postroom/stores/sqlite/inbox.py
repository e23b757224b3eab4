"""The inbox on SQLite. A handler, sync or async, gets a `sqlite3.Connection` inside a transaction.

One transaction writes at a time. Beginning waits for others and committing waits for the disk, so both are done in a thread;
what is between runs where the handler runs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self
from uuid import UUID

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.inbox import DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import StoreUnavailable
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
from postroom.stores.sqlite.errors import is_full_or_failing, is_not_now
from postroom.stores.sqlite.file import FileConnection, must_be_there
from postroom.stores.sqlite.schema import Schema
from postroom.stores.sqlite.statements import INBOX_FILES, Statements, many
from postroom.stores.sqlite.writer import Writer, connect

ALL = -1
"""SQLite's LIMIT for no limit."""


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
    """The same, awaited: each statement is a matter of microseconds, and the lock is ours already."""

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


class SQLiteInbox:
    """See `postroom.contracts.inbox` for what each method promises."""

    name = "sqlite"

    def __init__(self, path: Path, *, tables: TableNames | None = None) -> None:
        self._path, self._tables = path, tables or TableNames()
        self._statements = Statements(self._tables, INBOX_FILES)
        self._writer = Writer(path, self._tables)
        self._idle: list[FileConnection] = []
        self._turn, self._blocking_turn = asyncio.Lock(), Lock()

    async def check(self) -> None:
        schema = Schema(self._tables, None)
        await self._writer.read(lambda tx: schema.check(tx, f"sqlite:///{self._path}"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteInboxTransaction]:
        async with self._turn:
            connection = await self._begin_elsewhere()
            try:
                yield SQLiteInboxTransaction(BlockingSQLiteTransaction(connection, self._statements, self._writer))
            except BaseException as exc:
                self._give_up(connection, exc)
                raise
            await asyncio.shield(asyncio.to_thread(self._commit, connection))

    @contextmanager
    def blocking(self) -> Iterator[BlockingSQLiteTransaction]:
        with self._blocking_turn:
            connection = self._begin()
            try:
                yield BlockingSQLiteTransaction(connection, self._statements, self._writer)
            except BaseException as exc:
                self._give_up(connection, exc)
                raise
            self._commit(connection)

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        facts = {**event_row(consumer, event), **error_row(code, error), "now": _now()}
        rows = await self._writer.run(lambda tx: self._statements.run(tx, "failed", **facts).fetchall())
        return int(rows[0][0]) if rows else 0

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str, *, committed: bool = False) -> None:
        def bury(tx: sqlite3.Connection) -> None:
            facts = {**event_row(consumer, delivery.identity), **error_row(code, error)}
            given_up = self._statements.run(tx, "give_up", **facts, committed=committed, now=_now())
            if row := given_up.fetchone():
                self._statements.run(tx, "bury", **dead_row(consumer, delivery, row[0], code, error), now=_now())

        await self._writer.run(bury)

    async def known(self, query: KnownQuery) -> Sequence[Known]:
        ids = many(in_turn(query.ids)) if query.ids else None
        facts = known_parameters(query) | {"ids": ids, "limit": query.limit or ALL}
        rows = await self._writer.read(lambda tx: self._statements.run(tx, "known", **facts).fetchall())
        return [known_of(row, moment) for row in reversed(rows)]

    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        facts = _parameters(query) | {"requeued": query.requeued, "limit": query.limit or ALL}
        rows = await self._writer.read(lambda tx: self._statements.run(tx, "dead", **facts).fetchall())
        return [dead_of(row, moment) for row in rows]

    async def requeue(self, query: DeadQuery) -> int:
        def requeue(tx: sqlite3.Connection) -> int:
            rows = self._statements.run(tx, "requeue", **_parameters(query), now=_now()).fetchall()
            for consumer, source, id_ in rows:
                facts = {"consumer": consumer, "source": source, "id": id_}
                self._statements.run(tx, "let_go_again", **facts, now=_now())
            return len(rows)

        return await self._writer.run(requeue)

    async def counts(self) -> Mapping[str, Mapping[DeliveryState, int]]:
        rows = await self._writer.read(lambda tx: self._statements.run(tx, "inbox_counts").fetchall())
        counts: dict[str, dict[DeliveryState, int]] = {}
        for consumer, outcome, number in rows:
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        facts = {"consumer": consumer, "before": microseconds(before), "limit": limit}
        return await self._writer.run(lambda tx: self._statements.run(tx, "forget", **facts).rowcount)

    async def close(self) -> None:
        await self._writer.close()
        self._forget()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _begin_elsewhere(self) -> FileConnection:
        begun = asyncio.ensure_future(asyncio.to_thread(self._begin))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            # It begins all the same, and must not stay open.
            begun.add_done_callback(self._roll_back_begun)
            raise

    def _roll_back_begun(self, begun: asyncio.Future[FileConnection]) -> None:
        if begun.exception() is None:
            self._roll_back(begun.result())

    def _begin(self) -> FileConnection:
        try:
            connection = self._take()
        except sqlite3.Error as exc:
            raise self._writer.translated(exc) from exc
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as exc:
            connection.close()
            raise self._writer.translated(exc) from exc
        return connection

    def _take(self) -> FileConnection:
        # Async and sync handlers begin in different threads: to look first and take then would be a race.
        with suppress(IndexError):
            while True:
                if not (connection := self._idle.pop()).is_replaced(self._path):
                    return connection
                connection.close()
        must_be_there(self._path)
        return connect(self._path)

    def _commit(self, connection: FileConnection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as exc:
            self._roll_back(connection)
            if is_not_now(exc):
                self._forget()
            raise self._writer.translated(exc) from exc
        self._idle.append(connection)

    def _give_up(self, connection: FileConnection, exc: BaseException) -> None:
        """Roll back. Where the database or its disk failed, use no connection from before that, and say so."""
        # SQLite rolls back by itself then, which looks as if the handler had done so: what it raised is the cause.
        said = exc if isinstance(exc, sqlite3.Error) else exc.__cause__
        disk = said if isinstance(said, sqlite3.Error) and is_full_or_failing(said) else None
        if disk is None and not isinstance(exc, StoreUnavailable):
            self._roll_back(connection)
            return
        with suppress(sqlite3.Error):
            connection.close()
        self._forget()
        if disk is not None and not isinstance(exc, StoreUnavailable):
            raise self._writer.translated(disk) from exc

    def _forget(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _roll_back(self, connection: FileConnection) -> None:
        with suppress(sqlite3.Error):
            connection.rollback()
        if is_open(connection):
            self._idle.append(connection)


def is_open(connection: sqlite3.Connection) -> bool:
    """Can the connection be used? Not when its handler closed it; sqlite3 has no other way to ask."""
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


def _parameters(query: DeadQuery) -> dict[str, Any]:
    facts = query_parameters(query)
    return facts | {"ids": None if facts["ids"] is None else many(facts["ids"])}
