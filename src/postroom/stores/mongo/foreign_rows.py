"""Documents that somebody wrote by hand: they get what `put` would have given them, before any claim looks at them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import ObjectId
from bson.json_util import RELAXED_JSON_OPTIONS
from bson.json_util import dumps as to_json
from pymongo import ReturnDocument, UpdateOne

from postroom.message import id_of, rfc3339
from postroom.stores.documents import SEQ, reservation
from postroom.stores.mongo.collections import CollectionNames
from postroom.stores.mongo.schema import mismatch
from postroom.stores.mongo.server import Document, Session
from postroom.stores.sql.insert import line_hash

AT_ONCE = 1000
UNNUMBERED: Document = {"seq": None}


class ForeignRows:
    """Numbers what a stranger wrote, in the order in which the server stored it."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves = shelves

    async def welcome(self) -> None:
        """Give every document without a place one, with its lane. Of two who do it at once one waits: both begin with the
        same document, so no two of a key can get their places in the wrong order."""
        while await self._shelves.outbox.find_one(UNNUMBERED, {"_id": 1}) is not None:
            await self._shelves.server.run(self._some)

    async def _some(self, session: Session) -> None:
        # Without a transaction one by one: two who number many at once would mix their places.
        most = 1 if session is None else AT_ONCE
        found = self._shelves.outbox.find(UNNUMBERED, limit=most, hint=[("seq", 1)], session=session)
        documents = await found.to_list()
        if not documents:
            return
        counter = await reserve(self._shelves, len(documents))
        await self._shelves.outbox.bulk_write(_welcomes(documents, counter), session=session)


async def reserve(shelves: CollectionNames, number: int) -> Document:
    """Reserve so many places; the counter as it is then."""
    found = await shelves.counter.find_one_and_update(
        {"_id": SEQ}, reservation(number), return_document=ReturnDocument.AFTER
    )
    if found is None:
        raise mismatch(shelves)
    return found


def _welcomes(documents: Sequence[Document], counter: Document) -> list[UpdateOne]:
    first = counter["seq"] - len(documents) + 1
    return [
        UpdateOne({"_id": each["_id"], **UNNUMBERED}, {"$set": _rest(each, first + number, counter)})
        for number, each in enumerate(documents)
    ]


def _rest(found: Document, seq: int, counter: Document) -> Document:
    """What it lacks. What it has stays as it was written, but for a payload or headers that are no text yet."""
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
