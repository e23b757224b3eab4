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

from postroom.stores._inbox import in_turn
from postroom.stores.mysql.blocking import BlockingConnections
from postroom.stores.mysql.connections import PAUSE_SECONDS, TRIES
from postroom.stores.mysql.failures import BUSY, WAITED, code_of
from postroom.stores.mysql.handling import HandlingConnections, is_away, is_open
from postroom.stores.mysql.link import Connection
from postroom.stores.mysql.statements import Statements
from postroom.stores.mysql.values import listed, many

if TYPE_CHECKING:
    import pymysql

TOKEN_BITS = 63
AGAIN = BUSY - {WAITED}


class MySQLInboxTransaction:
    """See `postroom.inbox_store` for what each method promises."""

    def __init__(self, connection: Connection, pool: HandlingConnections, statements: Statements) -> None:
        self._connection, self._pool, self._statements = connection, pool, statements
        self._is_fresh = True

    @property
    def handle(self) -> Connection:
        self._is_fresh = False
        return self._connection

    async def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        for tries_left in reversed(range(TRIES)):
            try:
                new = await self._remember(consumer, in_turn(ids))
            except errors.MySQLError as exc:
                if code_of(exc) not in AGAIN or not tries_left or not self._is_fresh:
                    raise self._pool.translated(exc) from exc
                await self._begin_anew()
                await asyncio.sleep(_pause(tries_left))
            else:
                self._is_fresh = False
                return new
        raise AssertionError  # the last try returns or raises

    async def _remember(self, consumer: str, ids: list[str]) -> set[UUID]:
        token = randbits(TOKEN_BITS)
        await self._statements.run(self._connection, "remember", consumer=consumer, ids=listed(ids), token=token)
        rows = await self._statements.rows(
            self._connection, "remembered", consumer=consumer, ids=many(ids), token=token
        )
        return {UUID(id_) for (id_,) in rows}

    async def _begin_anew(self) -> None:
        """Nothing was done in it yet, so nobody misses the transaction that lost."""
        try:
            await self._connection.rollback()
            await self._connection.begin()
        except errors.MySQLError as exc:
            raise self._pool.translated(exc) from exc

    async def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        self._is_fresh = False
        try:
            await self._statements.run(self._connection, "unpark", consumer=consumer, ids=many(in_turn(ids)))
        except errors.MySQLError as exc:
            raise self._pool.translated(exc) from exc

    def is_whole(self) -> bool:
        return is_open(self._connection)

    def is_away(self) -> bool:
        return is_away(self._connection)


class BlockingMySQLTransaction:
    """The same for sync handlers."""

    def __init__(self, connection: pymysql.Connection[Any], pool: BlockingConnections, statements: Statements) -> None:
        self._connection, self._pool, self._statements = connection, pool, statements
        self._is_fresh = True

    @property
    def handle(self) -> pymysql.Connection[Any]:
        self._is_fresh = False
        return self._connection

    def remember(self, consumer: str, ids: Collection[UUID]) -> set[UUID]:
        import pymysql

        for tries_left in reversed(range(TRIES)):
            try:
                new = self._remember(consumer, in_turn(ids))
            except pymysql.MySQLError as exc:
                if code_of(exc) not in AGAIN or not tries_left or not self._is_fresh:
                    raise self._pool.translated(exc) from exc
                self._begin_anew()
                time.sleep(_pause(tries_left))
            else:
                self._is_fresh = False
                return new
        raise AssertionError  # the last try returns or raises

    def _remember(self, consumer: str, ids: list[str]) -> set[UUID]:
        token, texts = randbits(TOKEN_BITS), self._statements.texts
        with self._connection.cursor() as cursor:
            cursor.execute(texts["remember"], {"consumer": consumer, "ids": listed(ids), "token": token})
            cursor.execute(texts["remembered"], {"consumer": consumer, "ids": many(ids), "token": token})
            return {UUID(id_) for (id_,) in cursor.fetchall()}

    def _begin_anew(self) -> None:
        import pymysql

        try:
            self._connection.rollback()
            self._connection.begin()
        except pymysql.MySQLError as exc:
            raise self._pool.translated(exc) from exc

    def unpark(self, consumer: str, ids: Collection[UUID]) -> None:
        import pymysql

        self._is_fresh = False
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(self._statements.texts["unpark"], {"consumer": consumer, "ids": many(in_turn(ids))})
        except pymysql.MySQLError as exc:
            raise self._pool.translated(exc) from exc

    def is_whole(self) -> bool:
        return is_open(self._connection)

    def is_away(self) -> bool:
        return not self._connection.open


def _pause(tries_left: int) -> float:
    return PAUSE_SECONDS * (TRIES - tries_left) * random.random()  # noqa: S311 - no secret
