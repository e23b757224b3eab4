"""The inbox on MongoDB. A handler gets PyMongo's session inside a transaction: an async one AsyncClientSession, a sync one
ClientSession.

MongoDB does not wait for another transaction's document: the write fails at once, and its transaction with it. `remember`
begins again then, until the other transaction has ended.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from bson import MaxKey
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.collection import Collection as BlockingCollection
from pymongo.errors import ConnectionFailure, DuplicateKeyError, PyMongoError

from postroom.clock import utcnow
from postroom.config.tables import Part as TablePart
from postroom.contracts.inbox import UNFINISHED, DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import StoreError
from postroom.stores.mongo import blocking_connections, connections
from postroom.stores.mongo.blocking_connections import BlockingConnections
from postroom.stores.mongo.collections import Collections, Part, among, bare, without_transaction, zoned
from postroom.stores.mongo.connections import CODECS, Document, Session
from postroom.stores.mongo.errors import contended, was_second
from postroom.stores.rows import dead_of, dead_row, in_turn, kept_code, kept_error, kept_source, known_of

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
TRIES = 6
PATIENCE_SECONDS = 60.0
"""How long `remember` waits for a transaction: the server ends those that are older, unless it is told otherwise."""
PAUSE_MAX_SECONDS = 0.1
ROW = ("attributes", "headers", "body", "topic", "attempts", "code", "error", "dead_at", "requeued_at")
"""What `dead_of` reads after the consumer and the source."""
NAME = ("consumer", "source", "message_id")
KNOWN = ("outcome", "attempts", "at", "last_error_code", "last_error")
"""What `known_of` reads after the name."""
UNDECIDED = ("failing", "requeued")
"""The outcomes that are none: it may be handled again."""
MADE: Document = {"$ifNull": ["$attempts", 0]}
"""The tries made so far."""
ONE_MORE: Document = {"$add": [MADE, {"$cond": [{"$eq": ["$last_error_code", UNFINISHED]}, 0, 1]}]}
"""The same with this one, unless it was counted before it began."""


def again_if_inserted(
    method: Callable[Concatenate[MongoInbox, Session, Arguments], Awaitable[Result]],
) -> Callable[Concatenate[MongoInbox, Arguments], Coroutine[Any, Any, Result]]:
    """Like `in_transaction`; and run the method again when another transaction inserted the same document in between."""

    @wraps(method)
    async def run(inbox: MongoInbox, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for tries_left in reversed(range(TRIES)):
            try:
                return await inbox.connections.run(lambda session: method(inbox, session, *args, **kwargs))
            except StoreError as exc:
                if not isinstance(exc.__cause__, DuplicateKeyError) or not tries_left:
                    raise
        raise AssertionError  # the last try returns or raises

    return run


class MongoInbox(Part):
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, collections: Collections) -> None:
        super().__init__(collections)
        self._blocking = BlockingConnections(self.connections)

    def close(self) -> None:
        """Close the client of sync handlers; the other one is the store's."""
        self._blocking.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MongoInboxTransaction]:
        async with self.connections.handling() as session:
            yield MongoInboxTransaction(session, self.collections)

    @contextmanager
    def blocking(self) -> Iterator[BlockingMongoTransaction]:
        with self._blocking.transaction() as session:
            yield BlockingMongoTransaction(session, self.collections)

    @without_transaction
    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        wanted = {"_id": key(consumer, event), "outcome": among(UNDECIDED)}
        facts = {
            "outcome": "failing",
            "at": bare(utcnow()),
            "last_error_code": kept_code(code),
            "last_error": kept_error(error),
        }
        attempts = {"$add": [MADE, 1]} if code == UNFINISHED else ONE_MORE
        update = [{"$set": {"attempts": attempts} | {name: {"$literal": value} for name, value in facts.items()}}]
        inbox, after = self.collections.inbox, ReturnDocument.AFTER
        try:
            found = await inbox.find_one_and_update(wanted, update, upsert=True, return_document=after)
        except DuplicateKeyError:
            # It is there: handled or dead, or somebody counted at the same moment.
            found = await inbox.find_one_and_update(wanted, update, return_document=after)
        return int(found["attempts"]) if found else 0

    @again_if_inserted
    async def bury(
        self,
        session: Session,
        consumer: str,
        delivery: Delivery,
        code: str,
        error: str,
        *,
        committed: bool = False,
    ) -> None:
        name, at = key(consumer, delivery.identity), bare(utcnow())
        known = await self.collections.inbox.find_one({"_id": name}, session=session)
        if known is not None and known["outcome"] == "handled" and not committed:
            return
        attempts = 0 if known is None else known["attempts"]
        facts = {"outcome": "dead", "at": at, "last_error_code": kept_code(code), "last_error": kept_error(error)}
        update = {"$set": facts, "$setOnInsert": {"attempts": 0}}
        await self.collections.inbox.update_one({"_id": name}, update, upsert=True, session=session)
        row = dead_row(consumer, delivery, attempts, code, error)
        dead = {each: row[each] for each in ("type", "key", *ROW) if each in row} | {"dead_at": at}
        await self.collections.inbox_dead.replace_one({"_id": name}, dead, upsert=True, session=session)

    @without_transaction
    async def known(self, query: KnownQuery) -> Sequence[Known]:
        facts: dict[str, Any] = {"_id.consumer": query.consumer, "outcome": query.outcome}
        wanted: Document = {name: value for name, value in facts.items() if value is not None}
        if query.source is not None:
            wanted["_id.source"] = kept_source(query.source)
        if query.ids and query.consumer is not None:  # by the documents' own names, which is an index
            wanted["$or"] = [of_any_source(query.consumer, id_) for id_ in in_turn(query.ids)]
        elif query.ids:
            wanted["_id.message_id"] = among(in_turn(query.ids))
        order, limit = [("at", -1), ("_id", -1)], query.limit or 0
        found = await self.collections.inbox.find(wanted, sort=order, limit=limit).to_list()
        return [known_of([*map(each["_id"].get, NAME), *map(each.get, KNOWN)], zoned) for each in reversed(found)]

    @without_transaction
    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        wanted = _filter(query)
        if query.requeued is not None:
            wanted["requeued_at"] = {"$ne": None} if query.requeued else None
        order, limit = [("dead_at", 1), ("_id", 1)], query.limit or 0
        found = await self.collections.inbox_dead.find(wanted, sort=order, limit=limit).to_list()
        return [dead_of([each["_id"]["consumer"], each["_id"]["source"], *map(each.get, ROW)], zoned) for each in found]

    @again_if_inserted
    async def requeue(self, session: Session, query: DeadQuery) -> int:
        at, dead = bare(utcnow()), self.collections.inbox_dead
        found = await dead.find(_filter(query) | {"requeued_at": None}, {"_id": 1}, session=session).to_list()
        names = among([each["_id"] for each in found])
        await dead.update_many({"_id": names}, {"$set": {"requeued_at": at}}, session=session)
        again = {"$set": {"outcome": "requeued", "attempts": 0, "at": at}}
        await self.collections.inbox.update_many({"_id": names, "outcome": "dead"}, again, session=session)
        return len(found)

    @without_transaction
    async def counts(self) -> Mapping[str, Mapping[DeliveryState, int]]:
        group = {"_id": {"consumer": "$_id.consumer", "outcome": "$outcome"}, "number": {"$sum": 1}}
        counts: dict[str, dict[DeliveryState, int]] = {}
        for each in await (await self.collections.inbox.aggregate([{"$group": group}])).to_list():
            counts.setdefault(each["_id"]["consumer"], {})[each["_id"]["outcome"]] = each["number"]
        return counts

    @without_transaction
    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        old: Document = {"_id.consumer": consumer, "at": {"$lt": bare(before)}, "outcome": {"$ne": "dead"}}
        inbox = self.collections.inbox
        found = await inbox.find(old, {"_id": 1}, sort=[("at", 1)], limit=limit).to_list()
        gone = await inbox.delete_many({"_id": among([each["_id"] for each in found])} | old)
        return gone.deleted_count


class MongoInboxTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, session: AsyncClientSession, collections: Collections) -> None:
        self._session, self._collections, self._connections = session, collections, collections.connections
        self._is_fresh = True

    @property
    def handle(self) -> AsyncClientSession:
        self._is_fresh = False
        return self._session

    async def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        page, waiting = Page.of(consumer, events), Waiting.begin()
        with self._connections.translated():
            while True:
                try:
                    await self._remember(page)
                except PyMongoError as exc:
                    if not was_second(exc) or isinstance(exc, ConnectionFailure):
                        raise
                    if not self._is_fresh or waiting.is_over:
                        raise contended(self._connections.address.shown) from exc
                else:
                    self._is_fresh = False
                    return page.unknown
                # Nothing was done in it yet, so nobody misses the transaction that came second.
                await self._session.abort_transaction()
                await asyncio.sleep(waiting.pause())
                await connections.begin(self._session)

    async def _remember(self, page: Page) -> None:
        inbox = self._collections.inbox
        page.compare(await inbox.find(page.wanted, {"outcome": 1}, session=self._session).to_list())
        if page.new:
            await inbox.insert_many(page.documents, session=self._session)
        if page.again:
            await inbox.update_many(*page.update, session=self._session)

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self._is_fresh = False
        with self._connections.translated():
            wanted = {"_id": among([key(consumer, event) for event in events])}
            await self._collections.inbox_dead.delete_many(wanted, session=self._session)

    def is_whole(self) -> bool:
        return _is_whole(self._session)

    def is_ended(self) -> bool:
        return not _is_whole(self._session)

    def is_away(self) -> bool:
        return _is_away(self._session)


class BlockingMongoTransaction:
    """See `postroom.contracts.inbox` for what each method promises."""

    def __init__(self, session: ClientSession, collections: Collections) -> None:
        self._session, self._collections, self._connections = session, collections, collections.connections
        self._is_fresh = True

    @property
    def handle(self) -> ClientSession:
        self._is_fresh = False
        return self._session

    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        page, waiting = Page.of(consumer, events), Waiting.begin()
        with self._connections.translated():
            while True:
                try:
                    self._remember(page)
                except PyMongoError as exc:
                    if not was_second(exc) or isinstance(exc, ConnectionFailure):
                        raise
                    if not self._is_fresh or waiting.is_over:
                        raise contended(self._connections.address.shown) from exc
                else:
                    self._is_fresh = False
                    return page.unknown
                # Nothing was done in it yet, so nobody misses the transaction that came second.
                self._session.abort_transaction()
                time.sleep(waiting.pause())
                blocking_connections.begin(self._session)

    def _remember(self, page: Page) -> None:
        inbox = self._collection("inbox")
        page.compare(inbox.find(page.wanted, {"outcome": 1}, session=self._session).to_list())
        if page.new:
            inbox.insert_many(page.documents, session=self._session)
        if page.again:
            inbox.update_many(*page.update, session=self._session)

    def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        self._is_fresh = False
        with self._connections.translated():
            wanted = {"_id": among([key(consumer, event) for event in events])}
            self._collection("inbox_dead").delete_many(wanted, session=self._session)

    def _collection(self, part: TablePart) -> BlockingCollection[Document]:
        """The collection at the client of this session: one client cannot use another one's session."""
        database = self._session.client.get_database(self._connections.address.database, codec_options=CODECS)
        return database[self._collections.tables.name(part)]

    def is_whole(self) -> bool:
        return _is_whole(self._session)

    def is_ended(self) -> bool:
        return not _is_whole(self._session)

    def is_away(self) -> bool:
        return _is_away(self._session)


def _is_whole(session: AsyncClientSession | ClientSession) -> bool:
    return session.in_transaction and not session.has_ended


def _is_away(session: AsyncClientSession | ClientSession) -> bool:
    return not session.client.topology_description.has_writable_server()


@dataclass(slots=True)
class Page:
    """Some messages, and what is to be written of them once it is known which are there."""

    consumer: str
    events: list[Identity]
    new: list[Identity]
    again: list[Identity]

    @classmethod
    def of(cls, consumer: str, events: Collection[Identity]) -> Page:
        # In an order that is the same for all: two who want several wait for each other, never in a circle.
        return cls(consumer, sorted(events), [], [])

    @property
    def wanted(self) -> Document:
        return self._named(self.events)

    def _named(self, events: Collection[Identity]) -> Document:
        return {"_id": among([key(self.consumer, event) for event in events])}

    def compare(self, found: Collection[Document]) -> None:
        """Tell apart what is not there, and what waits for another try."""
        outcomes = {(each["_id"]["source"], each["_id"]["message_id"]): each["outcome"] for each in found}
        found_of = {event: outcomes.get((kept_source(event.source), str(event.id))) for event in self.events}
        self.new = [event for event, outcome in found_of.items() if outcome is None]
        self.again = [event for event, outcome in found_of.items() if outcome in UNDECIDED]

    @property
    def documents(self) -> list[Document]:
        at = bare(utcnow())
        handled = {"outcome": "handled", "attempts": 1, "at": at}
        return [{"_id": key(self.consumer, event), **handled} for event in self.new]

    @property
    def update(self) -> tuple[Document, list[Document]]:
        """What waits for another try is handled now."""
        wanted = self._named(self.again) | {"outcome": among(UNDECIDED)}
        handled = {"$set": {"outcome": "handled", "at": bare(utcnow()), "attempts": ONE_MORE}}
        return wanted, [handled, {"$unset": ["last_error_code", "last_error"]}]

    @property
    def unknown(self) -> set[Identity]:
        return {*self.new, *self.again}


@dataclass(slots=True)
class Waiting:
    """A wait for another transaction to end."""

    until: float
    turns: int = 0

    @classmethod
    def begin(cls) -> Waiting:
        return cls(time.monotonic() + PATIENCE_SECONDS)

    def pause(self) -> float:
        """How long to sleep before the next try: a little longer each time, and not as long as others do."""
        self.turns += 1
        return min(0.004 * self.turns, PAUSE_MAX_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until


def key(consumer: str, event: Identity) -> Document:
    """The name of a document, in the inbox and among the dead."""
    return {"consumer": consumer, "message_id": str(event.id), "source": kept_source(event.source)}


def of_any_source(consumer: str, id_: str) -> Document:
    """The names of all documents with this id, whatever their source: a range, so that an index finds them."""
    first = {"consumer": consumer, "message_id": id_}
    return {"_id": {"$gte": first, "$lt": {**first, "source": MaxKey()}}}


def _filter(query: DeadQuery) -> Document:
    wanted: dict[str, Any] = {"_id.consumer": query.consumer, "type": query.type, "key": query.key, "code": query.code}
    found = {name: value for name, value in wanted.items() if value is not None}
    return found | ({"_id.message_id": among(in_turn(query.ids))} if query.ids else {})
