"""Wake-ups by a change stream: MongoDB tells of every commit by itself.

The stream is a hint and the collections are the truth: it begins again, from now, whenever it broke. So nothing is lost when
the server has forgotten where it stood (ChangeStreamHistoryLost), the database was dropped, or this user may not watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pymongo.errors import PyMongoError

from postroom.errors import StoreUnavailable
from postroom.stores.mongo.collections import Collections
from postroom.stores.mongo.connections import Document
from postroom.stores.mongo.errors import said

AWAIT_MS = 1_000
"""How long the server keeps one question open; it answers at once when there is something."""
STOP_SECONDS = 2.0
"""How long somebody who stops a watch waits for its end."""
BUSY, PAUSE_SECONDS = 1_000, 0.05
"""After so many in a row the stream is left for a moment and begun again from there: a hint is not worth reading a flood."""


def news(collections: Collections) -> list[Document]:
    """What is worth a wake-up: a message in the line, new or again; a relay that comes or goes; a lane that is free."""
    changed = "updateDescription.updatedFields"
    written = {"ns.coll": collections.outbox.name}
    return [
        {
            "$match": {
                "$or": [
                    {**written, "operationType": "insert"},
                    {**written, "operationType": "update", f"{changed}.line": {"$exists": True}},
                    # A person requeued or discarded it: its key may move again.
                    {**written, "operationType": "update", "updateDescription.removedFields": "outcome"},
                    {**written, "operationType": "update", f"{changed}.outcome": "discarded"},
                    {
                        "ns.coll": collections.lane.name,
                        "operationType": "update",
                        f"{changed}.owner": {"$type": "null"},
                    },
                    {"ns.coll": collections.relay.name, "operationType": {"$in": ["insert", "delete"]}},
                    {"operationType": {"$in": ["drop", "dropDatabase", "rename", "invalidate"]}},
                ]
            }
        },
        {"$project": {"_id": 1, "operationType": 1}},
    ]


async def watch(collections: Collections, woken: Callable[[], None]) -> None:
    """Call *woken* for what is committed; until cancelled."""
    await collections.connections.open()
    stopping = asyncio.Event()
    reading = asyncio.create_task(_read(collections, woken, stopping))
    try:
        await asyncio.wait([reading])
    finally:
        # The driver may take a cancellation for a broken connection and go on: it is told in two ways, and waited for so long.
        stopping.set()
        reading.cancel()
        await asyncio.wait([reading], timeout=STOP_SECONDS)
    reading.result()


async def no_watch(woken: Callable[[], None]) -> None:
    """Say once that the watch stands, and then nothing; until cancelled. A standalone server has no change streams."""
    woken()
    await asyncio.Event().wait()


async def _read(collections: Collections, woken: Callable[[], None], stopping: asyncio.Event) -> None:
    where = collections.connections.address.shown
    try:
        while await _pass_on(collections, woken, stopping):  # noqa: ASYNC110 - a pause, and nothing is waited for
            await asyncio.sleep(PAUSE_SECONDS)
    except PyMongoError as exc:
        if stopping.is_set():
            return
        raise StoreUnavailable(
            f"MongoDB at {where} cannot be watched ({said(exc)}); Postroom polls it meanwhile."
        ) from exc
    if stopping.is_set():
        return
    raise StoreUnavailable(f"The watch of MongoDB at {where} has ended; Postroom polls it meanwhile.")


async def _pass_on(collections: Collections, woken: Callable[[], None], stopping: asyncio.Event) -> bool:
    """Pass on what one stream tells; True when it told too much, False when it has ended."""
    database = collections.connections.database
    async with await database.watch(news(collections), max_await_time_ms=AWAIT_MS, batch_size=BUSY) as stream:
        woken()
        for _ in range(BUSY):
            change = None
            while change is None:
                if stopping.is_set() or not stream.alive:
                    return False
                change = await stream.try_next()
            woken()
            if change["operationType"] == "invalidate":
                return False
    return True
