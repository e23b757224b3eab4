"""The connection for sync handlers: a client of PyMongo that blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from postroom.stores.mongo.connections import (
    MAJORITY,
    SNAPSHOT,
    TRANSACTION_SECONDS,
    WRONG_URL,
    Connections,
    Document,
    closed,
    no_url,
    require_transactions,
)
from postroom.stores.mongo.errors import NO_SUCH_TRANSACTION, TRANSIENT, UNKNOWN, ended

Client: TypeAlias = "MongoClient[Document]"


class BlockingConnections:
    """One client, which many threads share, made at the first use."""

    def __init__(self, others: Connections) -> None:
        self._others, self._address = others, others.address
        self._client: Client | None = None
        self._lock, self._closed = Lock(), False

    @contextmanager
    def transaction(self) -> Iterator[ClientSession]:
        """Yield a session in a transaction for a handler, whose errors come out as they are, unless the server went away."""
        with self._connected().start_session() as session:
            begin(session)
            try:
                yield session
            except ConnectionFailure as exc:
                if exc.has_error_label(TRANSIENT):
                    raise self._others.unavailable(exc) from exc
                raise
            if not session.in_transaction:
                raise ended()
            with self._others.translated():
                _commit(session, time.monotonic() + TRANSACTION_SECONDS)

    def close(self) -> None:
        """Close the client. Twice is fine."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        with self._lock:
            if self._closed:
                raise closed(self._address)
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> Client:
        try:
            client: Client = MongoClient(self._address.url, **self._address.patience)
        except WRONG_URL:
            raise no_url(self._address) from None  # what the driver says of it may quote the password
        try:
            with self._others.translated():
                require_transactions(client.admin.command("hello"), self._address)
        except BaseException:
            client.close()
            raise
        return client


def begin(session: ClientSession) -> None:
    """Start a transaction that reads one snapshot and writes to a majority."""
    session.start_transaction(SNAPSHOT, MAJORITY, ReadPreference.PRIMARY)


def _commit(session: ClientSession, deadline: float) -> None:
    """Commit. Repeat the commit alone until the deadline while its outcome is unknown."""
    while True:
        try:
            return session.commit_transaction()
        except PyMongoError as exc:
            if isinstance(exc, OperationFailure) and exc.code == NO_SUCH_TRANSACTION:
                raise ended() from exc
            if not exc.has_error_label(UNKNOWN) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
