"""What a relay costs the database when there is nothing to do: queries a second, its heartbeat included.

On PostgreSQL every statement that goes over the wire counts, on SQLite every one that its trace tells of; without BEGIN and
COMMIT, which ask nothing. PRAGMA data_version, which reads one number and takes no lock, is not a query either. The relay is
as it is by default; with its lease of 30 s, four heartbeats fall into the 40 s that are looked at.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from bench.postgres import shop
from bench.process import Process
from bench.sqlite import migrate
from bench.table import Row, progress, value
from bench.wiretap import FRAMING, Wiretap
from postroom.config.values import RelayConfig
from postroom.events import Event, LanesTaken, Listeners
from postroom.relay import Relay, Route
from postroom.stores import open_store
from postroom.transports.null import NullPublisher

TARGET = 2.0
CONFIG = RelayConfig()
SETTLE_SECONDS = 2.0
"""After it has its lanes, a relay looks often at first, then less."""
PATIENCE_SECONDS = 60


def run(*, quick: bool) -> Iterator[Row]:
    """SQLite and PostgreSQL, at the same time: there is nothing to do for either."""
    seconds = 1.0 if quick else 40.0
    with (
        TemporaryDirectory(prefix="postroom-bench-") as folder,
        shop(durable=not quick) as place,
        Process() as one,
        Process() as other,
    ):
        path = Path(folder) / "shop.db"
        asyncio.run(migrate(path))
        progress(f"idle relays, for {seconds:g} s")
        one.begin(on_sqlite, path, seconds)
        other.begin(on_postgres, place.url, seconds)
        yield _row(f"SQLite {sqlite3.sqlite_version}", one.answer(), seconds)
        yield _row(place.server, other.answer(), seconds)


def _row(where: str, queries: int, seconds: float) -> Row:
    return value(f"an idle relay ({where})", "relay", queries / seconds, "queries/s", target=TARGET)


def on_sqlite(path: Path, seconds: float) -> int:
    """The queries of a relay on this file, in so many idle seconds."""
    seen: Counter[str] = Counter()
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda text: seen.update([text.split()[0].upper()]))
        return connection

    def queries() -> int:
        return sum(number for word, number in seen.items() if word not in FRAMING | {"PRAGMA", "--"})

    with patch("sqlite3.connect", traced):
        return asyncio.run(_idle(f"sqlite:///{path}", queries, seconds))


def on_postgres(url: str, seconds: float) -> int:
    """The queries of a relay on this database, in so many idle seconds."""

    async def tapped() -> int:
        async with Wiretap(url) as tap:
            return await _idle(tap.url, lambda: tap.queries, seconds)

    return asyncio.run(tapped())


async def _idle(url: str, queries: Callable[[], int], seconds: float) -> int:
    logging.disable(logging.WARNING)
    owning = asyncio.Event()

    def heard(event: Event) -> None:
        if isinstance(event, LanesTaken):
            owning.set()

    listeners = Listeners()
    listeners.add(heard)
    async with open_store(url) as store, open_store(url) as heartbeat:
        relay = Relay(store, [Route(to=NullPublisher())], config=CONFIG, heartbeat=heartbeat, listeners=listeners)
        running = asyncio.create_task(relay.run())
        async with asyncio.timeout(PATIENCE_SECONDS + seconds):
            await owning.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            before = queries()
            await asyncio.sleep(seconds)
            counted = queries() - before
            relay.stop()
            await running
    return counted
