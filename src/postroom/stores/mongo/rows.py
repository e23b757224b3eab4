"""Messages in and out of documents: read, numbered where somebody wrote them by hand, and moved apart when dead."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import ObjectId
from bson.json_util import RELAXED_JSON_OPTIONS
from bson.json_util import dumps as to_json
from pymongo import ReplaceOne, ReturnDocument, UpdateOne

from postroom.codec import JSON
from postroom.contracts.outbox import Claimed
from postroom.message import Message, id_of, rfc3339
from postroom.stores.documents import SEQ, reservation
from postroom.stores.mongo.collections import Collections, Part, among, without_transaction
from postroom.stores.mongo.connections import Document, Session
from postroom.stores.rows import message_of
from postroom.stores.selection import Seen
from postroom.stores.sql.insert import line_hash

LOOK: Document = {"_id": 0, "seq": 1, "key": 1, "lost": 1, "tried_at": 1, "due_at": 1}
"""As much of a message as the choice needs."""
UNNUMBERED: Document = {"seq": None}
"""A document that was written by hand: it has no place yet."""
AT_ONCE = 1000
CONTENT = ("payload", "body", "headers")
"""What a dead message takes with it to its own collection."""
_new = tuple.__new__


def message_in(found: Document) -> Message:
    """The message in this document, byte for byte as it was written."""
    get = found.get
    payload = get("payload")
    expires_at = get("expires_at")
    return message_of(
        get("id") or found["_id"],
        found["type"],
        get("key"),
        get("aggregate"),
        get("topic"),
        get("body") if payload is None else payload.encode(),
        get("content_type") or JSON,
        get("headers"),
        get("correlation_id"),
        get("causation_id"),
        get("traceparent"),
        get("idempotency_key"),
        found["time"],
        None if expires_at is None else expires_at.replace(tzinfo=UTC),
    )


def claimed_in(found: Document, at: datetime) -> Claimed:
    """The message in this document, in flight from this moment on."""
    expires_at = found.get("expires_at")
    expired = expires_at is not None and expires_at <= at
    return _new(Claimed, (found["seq"], found.get("attempts", 0), expired, message_in(found)))


def seen_in(found: Document, at: datetime, held: Collection[str]) -> Seen:
    """What the choice sees of this document."""
    get = found.get
    due_at, key = get("due_at"), get("key")
    return Seen(
        found["seq"],
        key,
        get("lost", 0),
        get("tried_at") is not None,
        due_at is not None and due_at > at,
        key is not None and key in held,
    )


class ForeignRows(Part):
    """Documents that somebody wrote by hand. They get what `put` would have given them, before any claim looks at them, in the
    order in which the server stored them."""

    @without_transaction
    async def number(self) -> None:
        """Give a place and a lane to every document that has none. Of two who do it at once one waits: both begin with the
        same document, so no two of a key can get their places in the wrong order."""
        while await self.collections.outbox.find_one(UNNUMBERED, {"_id": 1}) is not None:
            await self.connections.run(self._some)

    async def _some(self, session: Session) -> None:
        # Without a transaction one by one: two who number many at once would mix their places.
        most = 1 if session is None else AT_ONCE
        found = self.collections.outbox.find(UNNUMBERED, limit=most, hint=[("seq", 1)], session=session)
        documents = await found.to_list()
        if not documents:
            return
        counter = await reserve(self.collections, len(documents))
        await self.collections.outbox.bulk_write(_numbered(documents, counter), session=session)


async def reserve(collections: Collections, number: int) -> Document:
    """Reserve so many places; the counter as it is then."""
    found = await collections.counter.find_one_and_update(
        {"_id": SEQ}, reservation(number), return_document=ReturnDocument.AFTER
    )
    if found is None:
        raise collections.missing()
    return found


def _numbered(documents: Sequence[Document], counter: Document) -> list[UpdateOne]:
    first = counter["seq"] - len(documents) + 1
    return [
        UpdateOne({"_id": each["_id"], **UNNUMBERED}, {"$set": _rest(each, first + number, counter)})
        for number, each in enumerate(documents)
    ]


def _rest(found: Document, seq: int, counter: Document) -> Document:
    """The fields that this document lacks. What it has stays as it was written, but for a payload or headers that are no text
    yet."""
    written: datetime = counter["at"]
    if isinstance(found["_id"], ObjectId):
        written = found["_id"].generation_time.replace(tzinfo=None)
    own_id = _uuid(found.get("id", found["_id"]))
    key = found.get("key")
    lane = line_hash(str(key or own_id)) % counter["lanes"]
    rest: Document = {"seq": seq, "lane": lane, "line": lane, "id": own_id, "attempts": found.get("attempts") or 0}
    if not isinstance(time := found.get("time"), str):
        rest["time"] = rfc3339((time or written).replace(tzinfo=UTC))
    if not isinstance(found.get("created_at"), datetime):
        rest["created_at"] = counter["at"]
    if not isinstance(payload := found.get("payload"), str | None):
        rest["payload"] = to_json(payload, json_options=RELAXED_JSON_OPTIONS)
    if isinstance(headers := found.get("headers"), dict):
        rest["headers"] = json.dumps({str(name): _text(value) for name, value in headers.items()}, ensure_ascii=False)
    return rest


def _uuid(given: Any) -> str:
    if isinstance(given, bytes) and len(given) == 16:
        return str(UUID(bytes=bytes(given)))
    return str(id_of(str(given)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value, json_options=RELAXED_JSON_OPTIONS)


class DeadApart(Part):
    """Dead messages in a collection of their own, where the URL asks for it.

    A dead message moves as it is. What stays in the outbox is its place: everything but the content, so that its id is known,
    its key waits, and it is found and counted where all messages are. Reading puts the two together again, whatever the
    reader's own URL says.

    Each method runs inside the transaction it is given; without one, its writes are in an order that loses nothing."""

    async def move(self, session: Session, seqs: Sequence[int]) -> None:
        """Move those of these that are dead, if that is wanted: the copy first."""
        if not seqs or not self.connections.address.dead_apart:
            return
        dead = {"seq": among(seqs), "outcome": "dead", "apart": None}
        found = await self.collections.outbox.find(dead, session=session).to_list()
        if not found:
            return
        copies = [ReplaceOne({"_id": each["_id"]}, each, upsert=True) for each in found]
        await self.collections.dead.bulk_write(copies, session=session)
        moved = {"$set": {"apart": True}, "$unset": dict.fromkeys(CONTENT, "")}
        await self.collections.outbox.update_many(dead, moved, session=session)

    async def whole(self, session: Session, found: Sequence[Document]) -> list[Document]:
        """These messages, each with its content."""
        ids = [each["_id"] for each in found if each.get("apart")]
        if not ids:
            return list(found)
        copies = await self.collections.dead.find({"_id": among(ids)}, session=session).to_list()
        contents = {each["_id"]: _content(each) for each in copies}
        return [{**each, **contents.get(each["_id"], {})} for each in found]

    async def back(self, session: Session, found: Sequence[Document]) -> None:
        """Give these their content back, for they will be dead no longer; the copy goes last."""
        if not found:
            return
        ids = among([each["_id"] for each in found])
        copies = await self.collections.dead.find({"_id": ids}, session=session).to_list()
        if copies:
            again = [
                UpdateOne({"_id": each["_id"], "apart": True}, {"$set": _content(each), "$unset": {"apart": ""}})
                for each in copies
            ]
            await self.collections.outbox.bulk_write(again, session=session)
            await self.collections.dead.delete_many({"_id": ids}, session=session)


def _content(found: Document) -> Document:
    return {name: found[name] for name in CONTENT if name in found}
