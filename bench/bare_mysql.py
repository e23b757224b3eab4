"""The bare loop, from MariaDB or MySQL to nowhere: fetch a batch, settle it by id. One connection, by asyncmy.

As durable as the server is told to be, on Postroom's own table, which is there already. It goes on behind the last seq it
saw, and loses whatever commits late.
"""

from __future__ import annotations

import asyncio
import time

import asyncmy

from bench.messages import messages
from postroom.outbox.outbox import Outbox
from postroom.stores.mysql.url import MySQLUrl

BATCH = 2_000
KEYS = 5_000
PART = 10_000
"""How many messages one transaction writes."""
TABLES = ("outbox", "outbox_claim", "outbox_hold")
FETCH = "SELECT seq, `key`, payload FROM outbox WHERE settled_at IS NULL AND seq > %s ORDER BY seq LIMIT %s"
SETTLE = "UPDATE outbox SET outcome = 'published', settled_at = utc_timestamp(6) WHERE seq IN %s"


def to_null(url: str) -> float:
    """Drain to nowhere; the seconds from the first fetch to the last commit."""
    return asyncio.run(_drain(url))


def fill(url: str, number: int) -> None:
    """Empty the tables and write so many open messages."""
    asyncio.run(_fill(url, number))


def published(url: str) -> int:
    """How many are settled as published."""
    return asyncio.run(_published(url))


async def _drain(url: str) -> float:
    async with asyncmy.connect(**MySQLUrl.of(url).parameters, autocommit=True) as connection:
        cursor = connection.cursor()
        begin, last = time.perf_counter(), 0
        while await cursor.execute(FETCH, (last, BATCH)):
            rows = await cursor.fetchall()
            last = rows[-1][0]
            await cursor.execute(SETTLE, (tuple(row[0] for row in rows),))
        return time.perf_counter() - begin


async def _fill(url: str, number: int) -> None:
    async with asyncmy.connect(**MySQLUrl.of(url).parameters, autocommit=True) as connection:
        for table in TABLES:
            await connection.cursor().execute(f"TRUNCATE {table}")
        everything = messages(number, KEYS)
        for start in range(0, number, PART):
            await connection.begin()
            await Outbox().put_many(connection, everything[start : start + PART])
            await connection.commit()
        await connection.cursor().execute("ANALYZE TABLE outbox")


async def _published(url: str) -> int:
    async with asyncmy.connect(**MySQLUrl.of(url).parameters, autocommit=True) as connection:
        cursor = connection.cursor()
        await cursor.execute("SELECT count(*) FROM outbox WHERE outcome = 'published'")
        ((count,),) = await cursor.fetchall()
        return int(count)
