"""PostgreSQL: `put_many` against COPY, the fastest way there is to write the same rows into the same table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import psycopg

from bench.messages import messages
from bench.postgres import shop
from bench.table import Row, ratio, take_turns
from postroom.outbox.outbox import Outbox
from postroom.stores.sql.insert import postgres_row

TARGET = 0.4
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Values: TypeAlias = Sequence[tuple[str | None, ...]]
outbox = Outbox()


def run(*, quick: bool) -> Iterator[Row]:
    """One row, on a server as PostgreSQL is: with fsync."""
    number, rounds = (100, 3) if quick else (10_000, 15)
    batch = messages(number)
    columns = tuple(postgres_row(batch[0]))
    rows = [tuple(map(postgres_row(message).get, columns)) for message in batch]
    with shop(durable=True) as place, psycopg.connect(place.url, autocommit=True) as connection:
        what = f"{number:,} messages ({place.server})"

        def base() -> float:
            return _timed(connection, lambda: _copy(connection, columns, rows), number)

        def ours() -> float:
            return _timed(connection, lambda: outbox.put_many(connection, batch), number)

        pairs = take_turns(what, base, ours, rounds=rounds)
    yield Row(what=what, base="COPY", ours="put_many", unit="rows/s", target=TARGET, **ratio(pairs))


def _copy(connection: Connection, columns: Sequence[str], rows: Values) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY outbox ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _timed(connection: Connection, write: Callable[[], object], number: int) -> float:
    connection.execute("TRUNCATE outbox")
    begin = time.perf_counter()
    with connection.transaction():
        write()
    return number / (time.perf_counter() - begin)
