"""The bare loop, from MongoDB to nowhere: fetch a batch, settle it by id. One client, one batch at a time.

As durable as the relay is (written to a majority, journalled), on Postroom's own collection.
"""

from __future__ import annotations

import time
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from bench.messages import messages
from postroom.outbox.outbox import Outbox

BATCH = 2_000
CHUNK = 5_000
KEYS = 5_000


def to_null(url: str) -> float:
    """Drain to nowhere; the seconds from the first fetch to the last write."""
    with MongoClient[dict[str, Any]](url) as client:
        outbox = _outbox(client)
        begin, last = time.perf_counter(), 0
        while rows := list(outbox.find({"seq": {"$gt": last}, "outcome": None}).sort("seq", 1).limit(BATCH)):
            last = rows[-1]["seq"]
            done = {"$set": {"outcome": "published"}, "$currentDate": {"settled_at": True}}
            outbox.update_many({"_id": {"$in": [row["_id"] for row in rows]}}, done)
        return time.perf_counter() - begin


def fill(url: str, number: int) -> None:
    """Empty the collections and write so many open messages."""
    with MongoClient[dict[str, Any]](url) as client, client.start_session() as session:
        for name in ("outbox", "outbox_claim", "outbox_hold"):
            client.get_default_database()[name].delete_many({})
        every = messages(number, KEYS)
        for at in range(0, number, CHUNK):
            with session.start_transaction():
                Outbox().put_many(session, every[at : at + CHUNK])


def published(url: str) -> int:
    """How many are settled as published."""
    with MongoClient[dict[str, Any]](url) as client:
        return _outbox(client).count_documents({"outcome": "published"})


def _outbox(client: MongoClient[dict[str, Any]]) -> Collection[dict[str, Any]]:
    database = client.get_default_database(write_concern=WriteConcern("majority", j=True))
    return database["outbox"]
