"""The inbox on MariaDB and MySQL. An async handler gets asyncmy's connection inside a transaction, a sync one PyMySQL's."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from secrets import randbits
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asyncmy import errors

from postroom.contracts.inbox import DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.stores.mysql.connections import PAUSE_SECONDS, TRIES, Connection, Connections
from postroom.stores.mysql.errors import BUSY, WAITED, code_of
from postroom.stores.mysql.inbox_connections import (
    BlockingConnections,
    HandlerConnection,
    HandlerConnections,
    is_gone,
    is_open,
)
from postroom.stores.mysql.statements import EVERYTHING, Statements, listed, many, text_of
from postroom.stores.rows import (
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
from postroom.stores.sql.parts import Part, in_transaction, single_statement

if TYPE_CHECKING:
    import pymysql

TOKEN_BITS = 63
AGAIN = BUSY - {WAITED}


class MySQLInboxTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, connection: HandlerConnection, connections: Connections, statements: Statements) -> None:
        self._connection, self._connections, self._statements = connection, connections, statements
        self._is_fresh = True

    @property
    def handle(self) -> HandlerConnection:
        self._is_fresh = False
        return self._connection

    async def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        for tries_left in reversed(range(TRIES)):
            try:
                new = await self._remember(consumer, events)
            except errors.MySQLError as exc:
                if code_of(exc) not in AGAIN or not tries_left or not self._is_fresh:
                    raise self._connections.translated(exc) from exc
                await self._begin_anew()
                await asyncio.sleep(_pause(tries_left))
            else:
                self._is_fresh = False
                return new
        raise AssertionError  # the last try returns or raises

    async def _remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        token, new = randbits(TOKEN_BITS), set[Identity]()
        for source, ids in by_source(events):
            facts, names = {"consumer": consumer, "source": kept_source(source), "token": token}, in_turn(ids)
            await self._statements.run(self._connection, "remember", **facts, ids=listed(names))
            rows = await self._statements.rows(self._connection, "remembered", **facts, ids=many(names))
            new.update(Identity(source, UUID(id_)) for (id_,) in rows)
        return new

    async def _begin_anew(self) -> None:
        """Nothing was done in it yet, so nobody misses the transaction that lost."""
        try:
            await self._connection.rollback()
            await self._connection.begin()
        except errors.MySQLError as exc:
            raise self._connections.translated(exc) from exc

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self._is_fresh = False
        try:
            for source, ids in by_source(events):
                facts = {"consumer": consumer, "source": kept_source(source), "ids": many(in_turn(ids))}
                await self._statements.run(self._connection, "unbury", **facts)
        except errors.MySQLError as exc:
            raise self._connections.translated(exc) from exc

    def is_whole(self) -> bool:
        return not is_gone(self._connection) and is_open(self._connection)

    def is_ended(self) -> bool:
        if is_gone(self._connection):
            return self._connection.was_closed
        return not is_open(self._connection)

    def is_away(self) -> bool:
        return is_gone(self._connection) and not self._connection.was_closed


class BlockingMySQLTransaction:
    """The same for sync handlers."""

    def __init__(self, connection: pymysql.Connection[Any], connections: Connections, statements: Statements) -> None:
        self._connection, self._connections, self._statements = connection, connections, statements
        self._is_fresh = True

    @property
    def handle(self) -> pymysql.Connection[Any]:
        self._is_fresh = False
        return self._connection

    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        import pymysql

        for tries_left in reversed(range(TRIES)):
            try:
                new = self._remember(consumer, events)
            except pymysql.MySQLError as exc:
                if code_of(exc) not in AGAIN or not tries_left or not self._is_fresh:
                    raise self._connections.translated(exc) from exc
                self._begin_anew()
                time.sleep(_pause(tries_left))
            else:
                self._is_fresh = False
                return new
        raise AssertionError  # the last try returns or raises

    def _remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        token, texts, new = randbits(TOKEN_BITS), self._statements.texts, set[Identity]()
        with self._connection.cursor() as cursor:
            for source, ids in by_source(events):
                facts, names = {"consumer": consumer, "source": kept_source(source), "token": token}, in_turn(ids)
                cursor.execute(texts["remember"], {**facts, "ids": listed(names)})
                cursor.execute(texts["remembered"], {**facts, "ids": many(names)})
                new.update(Identity(source, UUID(id_)) for (id_,) in cursor.fetchall())
        return new

    def _begin_anew(self) -> None:
        import pymysql

        try:
            self._connection.rollback()
            self._connection.begin()
        except pymysql.MySQLError as exc:
            raise self._connections.translated(exc) from exc

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        import pymysql

        self._is_fresh = False
        try:
            with self._connection.cursor() as cursor:
                for source, ids in by_source(events):
                    facts = {"consumer": consumer, "source": kept_source(source), "ids": many(in_turn(ids))}
                    cursor.execute(self._statements.texts["unbury"], facts)
        except pymysql.MySQLError as exc:
            raise self._connections.translated(exc) from exc

    def is_whole(self) -> bool:
        return self._connection.open and is_open(self._connection)

    def is_ended(self) -> bool:
        if self._connection.open:
            return not is_open(self._connection)
        return was_closed(self._connection)

    def is_away(self) -> bool:
        return not self._connection.open and not was_closed(self._connection)


def was_closed(connection: Any) -> bool:
    """Did somebody close it? Of one that broke, PyMySQL lets go without saying so, and shows the difference nowhere else."""
    return bool(connection._closed)  # noqa: SLF001 - see above


def _pause(tries_left: int) -> float:
    return PAUSE_SECONDS * (TRIES - tries_left) * random.random()  # noqa: S311 - no secret


class MySQLInbox(Part[Connection]):
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        super().__init__(connections, statements)
        self._connections, self._statements = connections, statements
        self._handling, self._blocking = HandlerConnections(connections), BlockingConnections(connections)

    async def close(self) -> None:
        """Close the connections of handlers; the others are the store's."""
        await self._handling.close()
        self._blocking.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MySQLInboxTransaction]:
        async with self._handling.transaction() as connection:
            yield MySQLInboxTransaction(connection, self._connections, self._statements)

    @contextmanager
    def blocking(self) -> Iterator[BlockingMySQLTransaction]:
        with self._blocking.transaction() as connection:
            yield BlockingMySQLTransaction(connection, self._connections, self._statements)

    @in_transaction
    async def failed(self, connection: Connection, consumer: str, event: Identity, code: str, error: str) -> int:
        row = event_row(consumer, event)
        await self._run(connection, "failed", **row, **error_row(code, error))
        rows = await self._rows(connection, "attempts_made", **row, outcome="failing")
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
        row = event_row(consumer, delivery.identity)
        await self._run(connection, "give_up", **row, **error_row(code, error), committed=committed)
        if rows := await self._rows(connection, "attempts_made", **row, outcome="dead"):
            await self._run(connection, "bury", **dead_row(consumer, delivery, rows[0][0], code, error))

    @single_statement
    async def known(self, connection: Connection, query: KnownQuery) -> Sequence[Known]:
        ids = {"any_id": not query.ids, "ids": many(in_turn(query.ids))}
        facts = known_parameters(query) | {"limit": query.limit or EVERYTHING}
        rows = await self._rows(connection, "known", **ids, **facts)
        return [known_of(row) for row in reversed(rows)]

    @single_statement
    async def dead(self, connection: Connection, query: DeadQuery) -> Sequence[DeadDelivery]:
        facts = _parameters(query) | {"requeued": query.requeued, "limit": query.limit or EVERYTHING}
        return [dead_of(row) for row in await self._rows(connection, "dead", **facts)]

    @in_transaction
    async def requeue(self, connection: Connection, query: DeadQuery) -> int:
        rows = await self._rows(connection, "to_requeue", **_parameters(query))
        await self._run(connection, "mark_requeued", rows=many(row for row, *_ in rows))
        for _, consumer, source, id_ in rows:
            await self._run(connection, "let_go_again", consumer=consumer, source=source, id=id_)
        return len(rows)

    @single_statement
    async def counts(self, connection: Connection) -> Mapping[str, Mapping[DeliveryState, int]]:
        counts: dict[str, dict[DeliveryState, int]] = {}
        for consumer, outcome, number in await self._rows(connection, "inbox_counts"):
            counts.setdefault(consumer, {})[outcome] = number
        return counts

    @in_transaction
    async def purge(self, connection: Connection, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        facts = {"consumer": consumer, "before": text_of(before), "limit": limit}
        return int((await self._run(connection, "forget", **facts)).rowcount)


def _parameters(query: DeadQuery) -> dict[str, Any]:
    facts = query_parameters(query)
    return facts | {"any_id": not query.ids, "ids": many(facts["ids"] or ())}
