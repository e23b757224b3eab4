"""The transactions of handlers on MariaDB and MySQL."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection
from secrets import randbits
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asyncmy import errors

from postroom.contracts.transport import Identity
from postroom.stores.inbox_rows import by_source, in_turn, kept_source
from postroom.stores.mysql.blocking_connections import BlockingConnections
from postroom.stores.mysql.connections import PAUSE_SECONDS, TRIES
from postroom.stores.mysql.errors import BUSY, WAITED, code_of
from postroom.stores.mysql.inbox_connections import HandlerConnection, HandlingConnections, is_gone, is_open
from postroom.stores.mysql.parameters import listed, many
from postroom.stores.mysql.statements import Statements

if TYPE_CHECKING:
    import pymysql

TOKEN_BITS = 63
AGAIN = BUSY - {WAITED}


class MySQLInboxTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, connection: HandlerConnection, pool: HandlingConnections, statements: Statements) -> None:
        self._connection, self._pool, self._statements = connection, pool, statements
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
                    raise self._pool.translated(exc) from exc
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
            raise self._pool.translated(exc) from exc

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self._is_fresh = False
        try:
            for source, ids in by_source(events):
                facts = {"consumer": consumer, "source": kept_source(source), "ids": many(in_turn(ids))}
                await self._statements.run(self._connection, "unbury", **facts)
        except errors.MySQLError as exc:
            raise self._pool.translated(exc) from exc

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

    def __init__(self, connection: pymysql.Connection[Any], pool: BlockingConnections, statements: Statements) -> None:
        self._connection, self._pool, self._statements = connection, pool, statements
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
                    raise self._pool.translated(exc) from exc
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
            raise self._pool.translated(exc) from exc

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        import pymysql

        self._is_fresh = False
        try:
            with self._connection.cursor() as cursor:
                for source, ids in by_source(events):
                    facts = {"consumer": consumer, "source": kept_source(source), "ids": many(in_turn(ids))}
                    cursor.execute(self._statements.texts["unbury"], facts)
        except pymysql.MySQLError as exc:
            raise self._pool.translated(exc) from exc

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
