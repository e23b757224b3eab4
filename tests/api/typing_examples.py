"""What a type checker sees of `put`: None on a sync handle, a coroutine on an async one. For mypy; never run."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from typing import Any, assert_type

import aiosqlite
import asyncpg
import psycopg
import psycopg2.extensions
import sqlalchemy
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from postroom.handles import AsyncHandle, SyncHandle
from postroom.inbox import Inbox, KeyedMessage
from postroom.message import Message
from postroom.outbox.outbox import Outbox

outbox, inbox, message = Outbox(), Inbox("billing"), Message("order.paid")


class Own:
    def postroom_handle(self) -> SyncHandle:
        raise NotImplementedError


class OwnAsync:
    def postroom_handle(self) -> AsyncHandle:
        raise NotImplementedError


def sync_handles(
    sqlite: sqlite3.Connection,
    psycopg3: psycopg.Connection[Any],
    psycopg_2: psycopg2.extensions.connection,
    session: Session,
    scoped: scoped_session[Session],
    connection: sqlalchemy.Connection,
    own: Own,
) -> None:
    assert_type(outbox.put(sqlite, message), None)
    assert_type(outbox.put(psycopg3, message), None)
    assert_type(outbox.put(psycopg_2, message), None)
    assert_type(outbox.put(session, message), None)
    assert_type(outbox.put(scoped, message), None)
    assert_type(outbox.put(connection, message), None)
    assert_type(outbox.put(own, message), None)
    assert_type(outbox.put_many(session, [message]), None)


def async_handles(
    sqlite: aiosqlite.Connection,
    psycopg3: psycopg.AsyncConnection[Any],
    plain: asyncpg.Connection[Any],
    pooled: PoolConnectionProxy[Any],
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    connection: AsyncConnection,
    own: OwnAsync,
) -> None:
    _ = assert_type(outbox.put(sqlite, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(psycopg3, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(plain, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(pooled, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(session, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(scoped, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(connection, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put(own, message), Coroutine[Any, Any, None])
    _ = assert_type(outbox.put_many(session, [message]), Coroutine[Any, Any, None])


def no_handles(
    engine: sqlalchemy.Engine,
    async_engine: AsyncEngine,
    maker: sessionmaker[Session],
    cursor: sqlite3.Cursor,
    pool: asyncpg.Pool[Any],
) -> None:
    outbox.put(engine, message)  # type: ignore[call-overload]  # it is refused before it runs
    outbox.put(async_engine, message)  # type: ignore[call-overload]  # the same
    outbox.put(maker, message)  # type: ignore[call-overload]  # the same
    outbox.put(cursor, message)  # type: ignore[call-overload]  # the same
    outbox.put(pool, message)  # type: ignore[call-overload]  # the same
    outbox.put("sqlite:///shop.db", message)  # type: ignore[call-overload]  # the same


class Paid:
    """A payload of somebody's own."""

    amount: int


@inbox.on("order.paid")
def typed_handler(paid: Paid, tx: sqlite3.Connection, message: KeyedMessage) -> None:
    assert_type(message.key, str)
    tx.execute("INSERT INTO charges VALUES (?, ?)", [message.key.upper(), paid.amount])


@inbox.on("order.paid", batch=10)
async def typed_batch(paid: list[Paid], tx: sqlite3.Connection, messages: list[KeyedMessage]) -> None:
    assert_type([each.key for each in messages], list[str])
    outbox.put(tx, Message("invoice.due", key=messages[0].key))


@inbox.on("order.*")
def plain_handler(message: Message, tx: sqlite3.Connection) -> None:
    assert_type(message.key, str | None)
    outbox.put(tx, message)
