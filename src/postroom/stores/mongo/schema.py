"""The collections and their indexes: made, brought up to date, checked, dropped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pymongo import ASCENDING, IndexModel, ReturnDocument, UpdateOne
from pymongo.errors import CollectionInvalid

from postroom.config.tables import Part as TablePart
from postroom.contracts.schema import Migration
from postroom.stores.documents import SEQ
from postroom.stores.mongo.collections import Collections, DocumentCollection, Part, without_transaction
from postroom.stores.mongo.connections import Document
from postroom.stores.sql.migrations import not_ours, other_lanes, too_new, too_old

LANES_DEFAULT = 64
DROPPED: tuple[TablePart, ...] = (
    "claim",
    "hold",
    "lane",
    "relay",
    "counter",
    "dead",
    "",
    "inbox_dead",
    "inbox",
    "schema",
)
"""All collections, in the order in which they are dropped."""

TEXT, MOMENT = {"bsonType": ["string", "null"]}, {"bsonType": ["date", "null"]}
RULES: Document = {
    "$jsonSchema": {
        "required": ["type"],
        "properties": {
            "type": {"bsonType": "string", "minLength": 1},
            **dict.fromkeys(("key", "aggregate", "topic", "content_type", "correlation_id", "causation_id"), TEXT),
            **dict.fromkeys(("traceparent", "idempotency_key"), TEXT),
            "headers": {"bsonType": ["string", "object", "null"]},
            "body": {"bsonType": ["binData", "null"]},
            "time": {"bsonType": ["date", "string", "null"]},
            **dict.fromkeys(("created_at", "due_at", "expires_at", "settled_at"), MOMENT),
        },
    }
}
"""What a stranger's insert must not get wrong: one unreadable document would stop its lane."""


def _only(field: str, *fields: str, **more: Any) -> IndexModel:
    """An index that holds only the documents that have this field."""
    keys = [(name, ASCENDING) for name in (field, *fields)]
    return IndexModel(keys, partialFilterExpression={field: {"$exists": True}}, **more)


OUTBOX = [
    # Every message by its place; those that a stranger wrote have none yet, and stand first, as the server stored them.
    IndexModel([("seq", ASCENDING)]),
    # The line: what is open and may go. The only index that the hot path reads.
    _only("line", "seq"),
    _only("later", "due_at"),
    _only("behind", "seq"),
    _only("parks"),
    _only("id", unique=True),
    IndexModel(
        [("idempotency_key", ASCENDING)],
        unique=True,
        partialFilterExpression={"idempotency_key": {"$type": "string"}},
    ),
]

INBOX = [IndexModel([("_id.consumer", ASCENDING), ("at", ASCENDING)])]
INBOX_DEAD = [IndexModel([("_id.consumer", ASCENDING), ("requeued_at", ASCENDING)])]
INBOX_BEGUN = "inbox"
"""The counter's field that says that the inbox's collections are ours: it is written before they are made."""


class MongoSchema(Part):
    """See `postroom.contracts.schema` for what each method promises. Every step may be taken twice, and by two at once: what
    is there is left as it is."""

    def __init__(self, collections: Collections, lanes: int | None) -> None:
        super().__init__(collections)
        self._lanes = lanes

    @without_transaction
    async def migrate(self) -> Migration:
        before, needed = await self._version(), newest()
        if before > needed:
            raise too_new(before, needed)
        collections, shown = self.collections, self.connections.address.shown
        names = await self.connections.database.list_collection_names()
        counter = await collections.counter.find_one()
        if not before and collections.outbox.name in names and counter is None:
            raise not_ours(shown, collections.tables)
        for part in ("inbox", "inbox_dead"):
            if before < inbox_since() and collections.tables.name(part) in names and INBOX_BEGUN not in (counter or {}):
                raise not_ours(shown, collections.tables, part)
        # The counter is the first thing made: whoever died after it can begin again.
        applied = await self._make(before)
        return Migration(before=before, after=needed, applied=applied)

    @without_transaction
    async def check(self) -> None:
        version, needed = await self._version(), newest()
        if version > needed:
            raise too_new(version, needed)
        if not version:
            raise self.collections.missing()
        if version < needed:
            raise too_old(version, needed, self.connections.address.shown, self.collections.tables)

    async def drop(self) -> None:
        # Not by `without_transaction`, which first asks what the server can do: any server can drop.
        with self.connections.translated():
            for part in DROPPED:
                await self.connections.database[self.collections.tables.name(part)].drop()

    async def _version(self) -> int:
        last = await self.collections.schema.find_one(sort=[("_id", -1)])
        return 0 if last is None else int(last["_id"])

    async def _make(self, before: int) -> list[str]:
        """Take the steps after this version; return their names."""
        lanes = await self._lane_count()
        if self._lanes is not None and lanes != self._lanes:
            raise other_lanes(lanes, self._lanes)
        pending = {number: step for number, step in STEPS.items() if number > before}
        for number, step in pending.items():
            for make in step.makes:
                await make(self, lanes)
            await self._done(number, step.name)
        return [step.name for step in pending.values()]

    async def make_outbox(self, lanes: int) -> None:
        """Make the collections of the outbox."""
        collections = self.collections
        apart = [collections.dead] if self.connections.address.dead_apart else []
        for collection in (
            collections.outbox,
            collections.lane,
            collections.claim,
            collections.hold,
            collections.relay,
            *apart,
        ):
            await self._create(collection, RULES if collection.name == collections.outbox.name else None)
        await collections.outbox.create_indexes(OUTBOX)
        await collections.claim.create_indexes([IndexModel([("lane", ASCENDING)], unique=True)])
        await collections.hold.create_indexes([IndexModel([("lane", ASCENDING), ("until", ASCENDING)])])
        fresh = {"epoch": 0, "owner": None, "lease_until": None, "claims": 0}
        await collections.lane.bulk_write(
            [UpdateOne({"_id": lane}, {"$setOnInsert": fresh}, upsert=True) for lane in range(lanes)]
        )

    async def make_inbox(self, lanes: int) -> None:  # noqa: ARG002 - every maker is told
        """Make the collections of the inbox."""
        collections = self.collections
        await collections.counter.update_one({"_id": SEQ}, {"$set": {INBOX_BEGUN: True}})
        for collection, indexes in ((collections.inbox, INBOX), (collections.inbox_dead, INBOX_DEAD)):
            await self._create(collection, None)
            await collection.create_indexes(indexes)

    async def _done(self, number: int, name: str) -> None:
        """A step's version is the last of it: while it is not there, nobody uses the rest."""
        applied = {"$setOnInsert": {"name": name}, "$currentDate": {"applied_at": True}}
        await self.collections.schema.update_one({"_id": number}, applied, upsert=True)

    async def _lane_count(self) -> int:
        """How many lanes there are; who comes first decides."""
        fresh = {"seq": 0, "lanes": self._lanes or LANES_DEFAULT}
        counter = await self.collections.counter.find_one_and_update(
            {"_id": SEQ}, {"$setOnInsert": fresh}, upsert=True, return_document=ReturnDocument.AFTER
        )
        return int(counter["lanes"]) if counter else 0

    async def _create(self, collection: DocumentCollection, rules: Document | None) -> None:
        try:
            options: dict[str, Any] = {"validator": rules} if rules else {}
            await self.connections.database.create_collection(collection.name, **options)
        except CollectionInvalid:
            return  # it is there


class Step(NamedTuple):
    """One numbered migration: its name, and what it makes, in this order."""

    name: str
    makes: tuple[Callable[[MongoSchema, int], Awaitable[None]], ...]


STEPS: dict[int, Step] = {1: Step("0001_postroom", (MongoSchema.make_outbox, MongoSchema.make_inbox))}


def newest() -> int:
    """The version this Postroom needs."""
    return max(STEPS)


def inbox_since() -> int:
    """The version since which the inbox is ours."""
    return next(number for number, step in STEPS.items() if MongoSchema.make_inbox in step.makes)
