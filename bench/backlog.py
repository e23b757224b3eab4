"""Messages that wait to be sent: the same rows for both sides, written by the server itself, and checked afterwards."""

from __future__ import annotations

from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import sql

KEYS = 5_000
BODY = 300
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# As `put` writes them, with the defaults of the table. The body has 300 bytes.
FILL: LiteralString = """
INSERT INTO {outbox} (type, key, payload)
SELECT 'order.paid', {key}, '{{"order":' || n || ',"note":"' || repeat('x', {body} - 20 - length(n::text)) || '"}}'
FROM generate_series(1, {number}) AS n
"""
SPREAD: LiteralString = "'order-' || n % {keys}"
HOT: LiteralString = "CASE WHEN n % 2 = 0 THEN 'hot' ELSE 'order-' || n / 2 % {keys} END"
SETTLE: LiteralString = """
UPDATE {outbox} SET outcome = 'published', settled_at = clock_timestamp(), tried_at = clock_timestamp(), attempts = 1
"""


def fill(url: str, number: int, *, table: str = "outbox", behind: bool = False, hot: bool = False) -> None:
    """Write so many open messages over 5,000 keys; the table is emptied first, unless they go *behind* what is there.

    *hot*: half of them are of one key. Afterwards the server is at rest: nothing left to vacuum, analyse or flush, which
    would otherwise fall into one side's time or the other's.
    """
    key = sql.SQL(HOT if hot else SPREAD).format(keys=KEYS)
    with psycopg.connect(url, autocommit=True) as connection:
        if not behind:
            _run(connection, "TRUNCATE {outbox}, {claim}, {hold}", table)
        _run(connection, FILL, table, key=key, number=number, body=BODY)
        settle_down(connection, table)


def publish_all(url: str, *, table: str = "outbox") -> None:
    """Mark everything in the table as published, as a relay leaves it."""
    with psycopg.connect(url, autocommit=True) as connection:
        _run(connection, SETTLE, table)
        settle_down(connection, table)


def settle_down(connection: Connection, table: str = "outbox") -> None:
    """Do now what the server would do later."""
    _run(connection, "VACUUM (ANALYZE) {outbox}", table)
    connection.execute("CHECKPOINT")


def published(url: str, *, table: str = "outbox") -> int:
    """How many are settled as published: a rate counts only what is."""
    with psycopg.connect(url, autocommit=True) as connection:
        counted = _run(connection, "SELECT count(*) FROM {outbox} WHERE outcome = 'published'", table)
        return int((counted.fetchone() or (0,))[0])


def _run(connection: Connection, text: LiteralString, table: str, **values: Any) -> psycopg.Cursor[tuple[Any, ...]]:
    names = {part or "outbox": sql.Identifier(f"{table}_{part}" if part else table) for part in ("", "claim", "hold")}
    return connection.execute(sql.SQL(text).format(**names, **values))
