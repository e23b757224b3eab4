"""Sessions in a transaction for async handlers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress

from pymongo import ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from postroom.contracts.transport import Identity
from postroom.stores.mongo.collections import CollectionNames
from postroom.stores.mongo.errors import TRANSIENT
from postroom.stores.mongo.inbox_rows import NO_SUCH_TRANSACTION, Page, Waiting, contended, ended, key, was_second
from postroom.stores.mongo.server import ABORT_SECONDS, MAJORITY, TRANSACTION_SECONDS, commit

SNAPSHOT = ReadConcern("snapshot")


class MongoInboxTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, session: AsyncClientSession, shelves: CollectionNames) -> None:
        self._session, self._shelves, self._server = session, shelves, shelves.server
        self._is_fresh = True

    @property
    def handle(self) -> AsyncClientSession:
        self._is_fresh = False
        return self._session

    async def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        page, waiting = Page.of(consumer, events), Waiting.begin()
        with self._server.translated():
            while True:
                try:
                    await self._remember(page)
                except PyMongoError as exc:
                    if not was_second(exc) or isinstance(exc, ConnectionFailure):
                        raise
                    if not self._is_fresh or waiting.is_over:
                        raise contended(self._server.address.shown) from exc
                else:
                    self._is_fresh = False
                    return page.unknown
                # Nothing was done in it yet, so nobody misses the transaction that came second.
                await self._session.abort_transaction()
                await asyncio.sleep(waiting.pause())
                await begin(self._session)

    async def _remember(self, page: Page) -> None:
        books = self._shelves.inbox
        page.compare(await books.find(page.wanted, {"outcome": 1}, session=self._session).to_list())
        if page.new:
            await books.insert_many(page.documents, session=self._session)
        if page.again:
            await books.update_many(*page.update, session=self._session)

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self._is_fresh = False
        with self._server.translated():
            wanted = {"_id": {"$in": [key(consumer, event) for event in events]}}
            await self._shelves.inbox_dead.delete_many(wanted, session=self._session)

    def is_whole(self) -> bool:
        return self._session.in_transaction and not self._session.has_ended

    def is_ended(self) -> bool:
        return not self.is_whole()

    def is_away(self) -> bool:
        return not self._session.client.topology_description.has_writable_server()


@asynccontextmanager
async def handling(shelves: CollectionNames) -> AsyncIterator[MongoInboxTransaction]:
    """A session in a transaction. What a handler raises comes out as it is, unless it is the server that went away."""
    server = shelves.server
    await server.open()
    session = server.client.start_session()
    try:
        await begin(session)
        try:
            yield MongoInboxTransaction(session, shelves)
        except ConnectionFailure as exc:
            # By this label it is known for what happened to a transaction, and not to another client of the handler's.
            if exc.has_error_label(TRANSIENT):
                raise server.unavailable(exc) from exc
            raise
        if not session.in_transaction:
            raise ended()
        with server.translated():
            await _commit(session)
    finally:
        # Somebody who was cancelled does not wait long: the server finds out by itself.
        with suppress(TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                await session.end_session()


async def begin(session: AsyncClientSession) -> None:
    await session.start_transaction(SNAPSHOT, MAJORITY, ReadPreference.PRIMARY)


async def _commit(session: AsyncClientSession) -> None:
    try:
        await commit(session, time.monotonic() + TRANSACTION_SECONDS)
    except OperationFailure as exc:
        # The server rolls a transaction back at its first error, which a handler may have kept to itself.
        if exc.code == NO_SUCH_TRANSACTION:
            raise ended() from exc
        raise
