"""Wake-ups by LISTEN and NOTIFY: hints that something was committed.

They are sent outside the producer's transaction. Inside it, NOTIFY makes commits wait for each other, all over the
database: with sixteen writers that costs three quarters of their rate.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, sql

from postroom.config.tables import TableNames
from postroom.contracts.store import Waker
from postroom.errors import StoreUnavailable
from postroom.stores.postgres.connections import HOW
from postroom.urls import redact

THROTTLE_SECONDS = 0.01
"""At most one wake-up of a process in this time: one is enough for everything that was committed before it."""
CHANNEL_MAX = 63


def channel(tables: TableNames) -> str:
    """The name under which wake-ups for these tables travel."""
    return f"{tables.qualified()}_wake"[-CHANNEL_MAX:]


async def watch(url: str, tables: TableNames, woken: Callable[[], None]) -> None:
    """Call *woken* for each wake-up; until cancelled. On a connection of its own: a pooler in between may swallow them."""
    try:
        connection = await AsyncConnection.connect(url, **HOW)
        async with connection:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel(tables))))
            woken()
            async for _ in connection.notifies():
                woken()
    except psycopg.Error as exc:
        raise StoreUnavailable(f"PostgreSQL at {redact(url)} cannot be watched; Postroom polls it meanwhile.") from exc


_wakers: WeakSet[PostgresWaker] = WeakSet()
_of_parents: list[psycopg.Connection[tuple[Any, ...]]] = []
"""Connections that a child must neither use nor close: closing would end them for the parent."""


class PostgresWaker(Waker):
    """Tells relays that something was committed, from a thread of its own: `wake` never waits and never fails."""

    def __init__(self, url: str, tables: TableNames) -> None:
        self._url, self._channel = url, channel(tables)
        self._closed = False
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._begin_anew()
        _wakers.add(self)

    def _begin_anew(self) -> None:
        self._news = threading.Condition()
        self._wanted = False
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """In a forked child the thread is gone, its lock may be held forever, and the connection is the parent's."""
        if self._connection is not None:
            _of_parents.append(self._connection)
            self._connection = None
        self._begin_anew()

    def wake(self) -> None:
        with self._news:
            self._wanted = True
            self._news.notify()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="postroom-waker", daemon=True)
                self._thread.start()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._is_wanted():
            try:
                self._send()
            except psycopg.Error:  # only a hint: the relay's polling stands behind it
                self._hang_up()
            with self._news:
                self._news.wait_for(lambda: self._closed, THROTTLE_SECONDS)
        self._hang_up()

    def _is_wanted(self) -> bool:
        """Wait until there is something to send (True), or nothing more will be (False)."""
        with self._news:
            self._news.wait_for(lambda: self._wanted or self._closed)
            wanted, self._wanted = self._wanted, False
            return wanted

    def _send(self) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, **HOW)
        self._connection.execute("SELECT pg_notify(%s, '')", [self._channel])

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _after_fork() -> None:
    for waker in list(_wakers):
        waker.after_fork()


os.register_at_fork(after_in_child=_after_fork)
