"""The inbox on MongoDB. A handler gets PyMongo's session inside a transaction: an async one AsyncClientSession, a sync one
ClientSession."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Self, TypeVar

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.inbox import UNFINISHED, DeadDelivery, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import ConfigError, StoreError
from postroom.stores.inbox_rows import dead_of, dead_row, in_turn, kept_source, known_of
from postroom.stores.mongo.blocking_connections import BlockingMongoTransaction, BlockingServer
from postroom.stores.mongo.collections import CollectionNames, among, bare, zoned
from postroom.stores.mongo.inbox_connections import MongoInboxTransaction, handling
from postroom.stores.mongo.inbox_rows import MADE, ONE_MORE, OPEN, key, of_any_source
from postroom.stores.mongo.schema import Schema
from postroom.stores.mongo.server import Document, Server, Session
from postroom.stores.mongo.url import address
from postroom.stores.sql.texts import kept_code, kept_error

Result = TypeVar("Result")
TRIES = 6
ROW = ("attributes", "headers", "body", "topic", "attempts", "code", "error", "dead_at", "requeued_at")
"""What `dead_of` reads after the consumer and the source."""
NAME = ("consumer", "source", "message_id")
KNOWN = ("outcome", "attempts", "at", "last_error_code", "last_error")
"""What `known_of` reads after the name."""


class MongoInbox:
    """See `postroom.contracts.inbox` for what each method promises."""

    name = "mongo"

    def __init__(self, url: str, *, tables: TableNames | None = None) -> None:
        tables = tables or TableNames()
        where = address(url, tables)
        if not where.transactions:
            raise ConfigError(
                f"The inbox on {where.shown} needs transactions, and postroom_transactions=off is in its URL: leave that out, "
                "and use a replica set; one node is enough."
            )
        self._server = Server(where)
        self._blocking = BlockingServer(self._server, tables)
        self._shelves = CollectionNames(self._server, tables)

    async def check(self) -> None:
        await self._server.ask(Schema(self._shelves, None).check)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MongoInboxTransaction]:
        async with handling(self._shelves) as tx:
            yield tx

    @contextmanager
    def blocking(self) -> Iterator[BlockingMongoTransaction]:
        with self._blocking.transaction() as tx:
            yield tx

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        wanted = {"_id": key(consumer, event), "outcome": among(OPEN)}
        facts = {
            "outcome": "failing",
            "at": bare(utcnow()),
            "last_error_code": kept_code(code),
            "last_error": kept_error(error),
        }
        attempts = {"$add": [MADE, 1]} if code == UNFINISHED else ONE_MORE
        update = [{"$set": {"attempts": attempts} | {name: {"$literal": value} for name, value in facts.items()}}]

        async def failed() -> Document | None:
            books, after = self._shelves.inbox, ReturnDocument.AFTER
            try:
                return await books.find_one_and_update(wanted, update, upsert=True, return_document=after)
            except DuplicateKeyError:
                # It is there: handled or dead, or somebody counted at the same moment.
                return await books.find_one_and_update(wanted, update, return_document=after)

        found = await self._server.ask(failed)
        return int(found["attempts"]) if found else 0

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str, *, committed: bool = False) -> None:
        name, at = key(consumer, delivery.identity), bare(utcnow())
        facts = {"outcome": "dead", "at": at, "last_error_code": kept_code(code), "last_error": kept_error(error)}

        async def bury(tx: Session) -> None:
            known = await self._shelves.inbox.find_one({"_id": name}, session=tx)
            if known is not None and known["outcome"] == "handled" and not committed:
                return
            attempts = 0 if known is None else known["attempts"]
            update = {"$set": facts, "$setOnInsert": {"attempts": 0}}
            await self._shelves.inbox.update_one({"_id": name}, update, upsert=True, session=tx)
            row = dead_row(consumer, delivery, attempts, code, error)
            dead = {each: row[each] for each in ("type", "key", *ROW) if each in row} | {"dead_at": at}
            await self._shelves.inbox_dead.replace_one({"_id": name}, dead, upsert=True, session=tx)

        await self._run(bury)

    async def known(self, query: KnownQuery) -> Sequence[Known]:
        facts: dict[str, Any] = {"_id.consumer": query.consumer, "outcome": query.outcome}
        wanted: Document = {name: value for name, value in facts.items() if value is not None}
        if query.source is not None:
            wanted["_id.source"] = kept_source(query.source)
        if query.ids and query.consumer is not None:  # by the documents' own names, which is an index
            wanted["$or"] = [of_any_source(query.consumer, id_) for id_ in in_turn(query.ids)]
        elif query.ids:
            wanted["_id.message_id"] = among(in_turn(query.ids))
        order, books, limit = [("at", -1), ("_id", -1)], self._shelves.inbox, query.limit or 0
        found = await self._server.ask(lambda: books.find(wanted, sort=order, limit=limit).to_list())
        return [known_of([*map(each["_id"].get, NAME), *map(each.get, KNOWN)], zoned) for each in reversed(found)]

    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        wanted = _filter(query)
        if query.requeued is not None:
            wanted["requeued_at"] = {"$ne": None} if query.requeued else None
        order = [("dead_at", 1), ("_id", 1)]
        books, limit = self._shelves.inbox_dead, query.limit or 0
        found = await self._server.ask(lambda: books.find(wanted, sort=order, limit=limit).to_list())
        return [dead_of([each["_id"]["consumer"], each["_id"]["source"], *map(each.get, ROW)], zoned) for each in found]

    async def requeue(self, query: DeadQuery) -> int:
        async def requeue(tx: Session) -> int:
            at, dead = bare(utcnow()), self._shelves.inbox_dead
            found = await dead.find(_filter(query) | {"requeued_at": None}, {"_id": 1}, session=tx).to_list()
            names = among([each["_id"] for each in found])
            await dead.update_many({"_id": names}, {"$set": {"requeued_at": at}}, session=tx)
            again = {"$set": {"outcome": "requeued", "attempts": 0, "at": at}}
            await self._shelves.inbox.update_many({"_id": names, "outcome": "dead"}, again, session=tx)
            return len(found)

        return await self._run(requeue)

    async def counts(self) -> Mapping[str, Mapping[DeliveryState, int]]:
        group = {"_id": {"consumer": "$_id.consumer", "outcome": "$outcome"}, "number": {"$sum": 1}}

        async def count() -> list[Document]:
            return await (await self._shelves.inbox.aggregate([{"$group": group}])).to_list()

        counts: dict[str, dict[DeliveryState, int]] = {}
        for each in await self._server.ask(count):
            counts.setdefault(each["_id"]["consumer"], {})[each["_id"]["outcome"]] = each["number"]
        return counts

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        old: Document = {"_id.consumer": consumer, "at": {"$lt": bare(before)}, "outcome": {"$ne": "dead"}}

        async def forget() -> int:
            books = self._shelves.inbox
            found = await books.find(old, {"_id": 1}, sort=[("at", 1)], limit=limit).to_list()
            gone = await books.delete_many({"_id": among([each["_id"] for each in found])} | old)
            return gone.deleted_count

        return await self._server.ask(forget)

    async def close(self) -> None:
        await self._server.close()
        self._blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _run(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        """In one transaction; again when somebody inserted the same document in between."""
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._server.run(work)
            except StoreError as exc:
                if not isinstance(exc.__cause__, DuplicateKeyError) or not tries_left:
                    raise
        raise AssertionError  # the last try returns or raises


def _filter(query: DeadQuery) -> Document:
    wanted: dict[str, Any] = {"_id.consumer": query.consumer, "type": query.type, "key": query.key, "code": query.code}
    found = {name: value for name, value in wanted.items() if value is not None}
    return found | ({"_id.message_id": among(in_turn(query.ids))} if query.ids else {})
