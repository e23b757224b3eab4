"""Connections for sync handlers, each used by one thread at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

import psycopg

from postroom.errors import StoreError
from postroom.stores.postgres.connections import (
    HOW,
    NOT_PREPARED_HERE,
    WHO,
    Connections,
)
from postroom.stores.postgres.errors import Blamed, is_not_now
from postroom.urls import redact

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


class BlockingConnections:
    """A small pool."""

    def __init__(self, others: Connections) -> None:
        self._url, self._others = others.url, others
        self._idle: list[Connection] = []
        self._lock, self._closed = Lock(), False

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection inside a transaction; what is raised inside comes out as it is."""
        try:
            connection = self._take()
            connection.prepare_threshold = self._others.prepare_after
        except psycopg.Error as exc:
            raise self._others.translated(exc) from exc
        blamed = Blamed(connection)
        try:
            with connection.transaction(), blamed:
                yield connection
        except NOT_PREPARED_HERE as exc:
            self._others.forget_prepared()
            connection.close()
            raise self._others.pooled() from exc
        except psycopg.Error as exc:
            if is_not_now(exc) and blamed.is_ours:
                connection.close()
                self._forget()
            if connection.closed:
                raise self._others.translated(exc) from exc
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        if self._closed:
            raise StoreError(f"The store at {redact(self._url)} is closed: open it again.")
        with self._lock:
            while self._idle:
                if not (connection := self._idle.pop()).closed:
                    return connection
        connection = psycopg.connect(self._url, **HOW)
        if self._others.prepare_after is not None:
            self._others.note_who(connection, connection.execute(WHO, prepare=False).fetchone())
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.closed:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
