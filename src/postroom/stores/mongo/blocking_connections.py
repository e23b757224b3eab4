"""The same for sync handlers, by a client of PyMongo's that blocks."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.collection import Collection as Books
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from postroom.config.tables import Part, TableNames
from postroom.contracts.transport import Identity
from postroom.stores.mongo.errors import TRANSIENT, UNKNOWN
from postroom.stores.mongo.inbox_connections import SNAPSHOT
from postroom.stores.mongo.inbox_rows import NO_SUCH_TRANSACTION, Page, Waiting, contended, ended, key, was_second
from postroom.stores.mongo.server import (
    CODECS,
    MAJORITY,
    TRANSACTION_SECONDS,
    WRONG_URL,
    Document,
    Server,
    closed,
    no_url,
    require_transactions,
)

Client: TypeAlias = "MongoClient[Document]"


class BlockingServer:
    """One client, which many threads share, made at the first use."""

    def __init__(self, server: Server, tables: TableNames) -> None:
        self.server, self.address, self._tables = server, server.address, tables
        self._client: Client | None = None
        self._lock, self._closed = Lock(), False

    @contextmanager
    def transaction(self) -> Iterator[BlockingMongoTransaction]:
        """A session in a transaction. What a handler raises comes out as it is, unless the server went away."""
        with self._connected().start_session() as session:
            begin(session)
            try:
                yield BlockingMongoTransaction(session, self)
            except ConnectionFailure as exc:
                if exc.has_error_label(TRANSIENT):
                    raise self.server.unavailable(exc) from exc
                raise
            if not session.in_transaction:
                raise ended()
            with self.server.translated():
                _commit(session, time.monotonic() + TRANSACTION_SECONDS)

    def books(self, part: Part) -> Books[Document]:
        return self._connected().get_database(self.address.database, codec_options=CODECS)[self._tables.name(part)]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        with self._lock:
            if self._closed:
                raise closed(self.address)
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> Client:
        try:
            client: Client = MongoClient(self.address.url, **self.address.patience)
        except WRONG_URL:
            raise no_url(self.address) from None  # what the driver says of it may quote the password
        try:
            with self.server.translated():
                require_transactions(client.admin.command("hello"), self.address)
        except BaseException:
            client.close()
            raise
        return client


class BlockingMongoTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, session: ClientSession, blocking: BlockingServer) -> None:
        self._session, self._blocking, self._server = session, blocking, blocking.server
        self._is_fresh = True

    @property
    def handle(self) -> ClientSession:
        self._is_fresh = False
        return self._session

    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        page, waiting = Page.of(consumer, events), Waiting.begin()
        with self._server.translated():
            while True:
                try:
                    self._remember(page)
                except PyMongoError as exc:
                    if not was_second(exc) or isinstance(exc, ConnectionFailure):
                        raise
                    if not self._is_fresh or waiting.is_over:
                        raise contended(self._server.address.shown) from exc
                else:
                    self._is_fresh = False
                    return page.unknown
                # Nothing was done in it yet, so nobody misses the transaction that came second.
                self._session.abort_transaction()
                time.sleep(waiting.pause())
                begin(self._session)

    def _remember(self, page: Page) -> None:
        books = self._blocking.books("inbox")
        page.compare(books.find(page.wanted, {"outcome": 1}, session=self._session).to_list())
        if page.new:
            books.insert_many(page.documents, session=self._session)
        if page.again:
            books.update_many(*page.update, session=self._session)

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self._is_fresh = False
        with self._server.translated():
            wanted = {"_id": {"$in": [key(consumer, event) for event in events]}}
            self._blocking.books("inbox_dead").delete_many(wanted, session=self._session)

    def is_whole(self) -> bool:
        return self._session.in_transaction and not self._session.has_ended

    def is_ended(self) -> bool:
        return not self.is_whole()

    def is_away(self) -> bool:
        return not self._session.client.topology_description.has_writable_server()


def begin(session: ClientSession) -> None:
    session.start_transaction(SNAPSHOT, MAJORITY, ReadPreference.PRIMARY)


def _commit(session: ClientSession, deadline: float) -> None:
    """The commit alone is repeated while nobody knows what became of it."""
    while True:
        try:
            return session.commit_transaction()
        except PyMongoError as exc:
            if isinstance(exc, OperationFailure) and exc.code == NO_SUCH_TRANSACTION:
                raise ended() from exc
            if not exc.has_error_label(UNKNOWN) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
