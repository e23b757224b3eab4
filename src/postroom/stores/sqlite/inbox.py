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
from postroom.inbox_store import Outcome, Parked, ParkedQuery
from postroom.stores._inbox import in_turn, park_row, parked_of, query_parameters, shortened
from postroom.stores._time import microseconds, moment
from postroom.stores.sqlite.schema import Schema
from postroom.stores.sqlite.statements import INBOX_FILES, Statements, many
from postroom.stores.sqlite.writer import Writer, connect
from postroom.tables import TableNames
from postroom.transport import Delivery

ALL = -1
"""SQLite's LIMIT for no limit."""


def _now() -> int:
    return microseconds(utcnow())


@dataclass(slots=True)
class BlockingSQLiteTransaction:
    """See `postroom.inbox_store` for what each method promises."""

    handle: sqlite3.Connection
    statements: Statements

    def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        rows = self.statements.run(self.handle, "remember", consumer=consumer, ids=many(in_turn(ids)), now=_now())
        return {UUID(row[0]) for row in rows.fetchall()}

    def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        self.statements.run(self.handle, "unpark", consumer=consumer, ids=many(in_turn(ids)))

    def is_whole(self) -> bool:
        return self.handle.in_transaction

    def is_away(self) -> bool:
        return False


@dataclass(slots=True)
class SQLiteInboxTransaction:
    """The same, awaited: each statement is a matter of microseconds, and the lock is ours already."""

    blocking: BlockingSQLiteTransaction

    @property
    def handle(self) -> sqlite3.Connection:
        return self.blocking.handle

    async def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        return self.blocking.remember(consumer, ids)

    async def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        self.blocking.unpark(consumer, ids)

    def is_whole(self) -> bool:
        return self.blocking.is_whole()

    def is_away(self) -> bool:
        return False


class SQLiteInbox:
    """See `postroom.inbox_store` for what each method promises."""

    name = "sqlite"

    def __init__(self, path: Path, *, tables: TableNames | None = None) -> None:
        self._path, self._tables = path, tables or TableNames()
        self._statements = Statements(self._tables, INBOX_FILES)
        self._writer = Writer(path, self._tables)
        self._idle: list[sqlite3.Connection] = []
        self._turn, self._blocking_turn = asyncio.Lock(), Lock()

    async def check(self) -> None:
        schema = Schema(self._tables, None)
        await self._writer.read(lambda tx: schema.check(tx, f"sqlite:///{self._path}"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLiteInboxTransaction]:
        async with self._turn:
            connection = await self._begin_elsewhere()
            try:
                yield SQLiteInboxTransaction(BlockingSQLiteTransaction(connection, self._statements))
            except BaseException:
                self._roll_back(connection)
                raise
            await asyncio.shield(asyncio.to_thread(self._commit, connection))

    @contextmanager
    def blocking(self) -> Iterator[BlockingSQLiteTransaction]:
        with self._blocking_turn:
            connection = self._begin()
            try:
                yield BlockingSQLiteTransaction(connection, self._statements)
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection)

    async def failed(self, consumer: str, id: UUID, code: str, error: str) -> int:
        facts = {"consumer": consumer, "id": str(id), "code": code, "error": shortened(error), "now": _now()}
        rows = await self._writer.run(lambda tx: self._statements.run(tx, "failed", **facts).fetchall())
        return int(rows[0][0]) if rows else 0

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str) -> None:
        def bury(tx: sqlite3.Connection) -> None:
            facts = {"consumer": consumer, "id": delivery.message.id_text, "code": code, "error": shortened(error)}
            if row := self._statements.run(tx, "give_up", **facts, now=_now()).fetchone():
                self._statements.run(tx, "park", **park_row(consumer, delivery, row[0], code, error), now=_now())

        await self._writer.run(bury)

    async def parked(self, query: ParkedQuery) -> Sequence[Parked]:
        facts = _parameters(query) | {"requeued": query.requeued, "limit": query.limit or ALL}
        rows = await self._writer.read(lambda tx: self._statements.run(tx, "parked", **facts).fetchall())
        return [parked_of(row, moment) for row in rows]

    async def requeue(self, query: ParkedQuery) -> int:
        def requeue(tx: sqlite3.Connection) -> int:
            rows = self._statements.run(tx, "requeue", **_parameters(query), now=_now()).fetchall()
            for consumer, id_ in rows:
                self._statements.run(tx, "let_go_again", consumer=consumer, id=id_, now=_now())
            return len(rows)

        return await self._writer.run(requeue)

    async def counts(self) -> Mapping[str, Mapping[Outcome, int]]:
        rows = await self._writer.read(lambda tx: self._statements.run(tx, "inbox_counts").fetchall())
        counts: dict[str, dict[Outcome, int]] = {}
        for consumer, outcome, number in rows:
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    async def purge(self, before: datetime, *, limit: int = 10_000) -> int:
        facts = {"before": microseconds(before), "limit": limit}
        return await self._writer.run(lambda tx: self._statements.run(tx, "forget", **facts).rowcount)

    async def close(self) -> None:
        await self._writer.close()
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _begin_elsewhere(self) -> sqlite3.Connection:
        begun = asyncio.ensure_future(asyncio.to_thread(self._begin))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            # It begins all the same, and must not stay open.
            begun.add_done_callback(self._roll_back_begun)
            raise

    def _roll_back_begun(self, begun: asyncio.Future[sqlite3.Connection]) -> None:
        if begun.exception() is None:
            self._roll_back(begun.result())

    def _begin(self) -> sqlite3.Connection:
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

    def _take(self) -> sqlite3.Connection:
        # Async and sync handlers begin in different threads: to look first and take then would be a race.
        with suppress(IndexError):
            return self._idle.pop()
        return connect(self._path)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as exc:
            self._roll_back(connection)
            raise self._writer.translated(exc) from exc
        self._idle.append(connection)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            connection.rollback()
        self._idle.append(connection)


def _parameters(query: ParkedQuery) -> dict[str, Any]:
    facts = query_parameters(query)
    return facts | {"ids": None if facts["ids"] is None else many(facts["ids"])}
