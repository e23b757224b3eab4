"""The bare loop, from SQLite to nowhere: fetch a batch, settle it by id. One connection, as there is one writer anyway.

As durable as the relay is (WAL, synchronous=FULL), on Postroom's own table. Of batches of 500, 2,000 and 10,000,
three rounds each, 2,000 had the highest median.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from bench.messages import messages
from postroom.outbox.outbox import Outbox
from postroom.stores.sqlite.connections import connect

BATCH = 2_000
KEYS = 5_000
FETCH = "SELECT seq, key, payload FROM outbox WHERE settled_at IS NULL AND seq > ? ORDER BY seq LIMIT ?"
SETTLE = """
UPDATE outbox SET outcome = 'published', settled_at = ? WHERE seq IN (SELECT value FROM json_each(?))
"""


def to_null(path: Path) -> float:
    """Drain to nowhere; the seconds from the first fetch to the last commit."""
    with closing(connect(path)) as connection:
        begin, last = time.perf_counter(), 0
        while rows := connection.execute(FETCH, (last, BATCH)).fetchall():
            last = rows[-1][0]
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(SETTLE, (time.time_ns() // 1_000, json.dumps([row[0] for row in rows])))
        return time.perf_counter() - begin


def fill(path: Path, number: int) -> None:
    """Empty the tables and write so many open messages."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for table in ("outbox", "outbox_claim", "outbox_hold"):
            connection.execute(f"DELETE FROM {table}")
        Outbox().put_many(connection, messages(number, KEYS))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def published(path: Path) -> int:
    """How many are settled as published."""
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM outbox WHERE outcome = 'published'").fetchone()
        return int(count)
