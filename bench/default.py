"""How fast a backlog drains with no setting touched, to the best of a few settings made by hand."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import backlog, bare_sqlite, engine, sinks
from bench.kafka import kafka
from bench.postgres import shop
from bench.process import Process
from bench.sqlite import migrate
from bench.table import Row, progress, ratio, take_turns
from postroom.config.values import RelayConfig

TARGET = 0.75
BY_HAND = (RelayConfig(batch=500, concurrency=4), RelayConfig(batch=4_096, concurrency=6))
"""Of five (32 to 4,096 by 4 or 6) these two had the highest rate, one or the other, from each store to each place."""
DEFAULT = RelayConfig()


@dataclass(frozen=True, slots=True)
class Place:
    """A store: how it is called, filled, and counted."""

    url: str
    name: str
    fill: Callable[[int], None]
    published: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go, in words and as a URL, and how many are enough to see."""

    name: str
    url: str
    number: int


def run(*, quick: bool) -> Iterator[Row]:
    """From PostgreSQL and SQLite to nowhere, Kafka, a function and a webhook."""
    many, few, rounds = (2_000, 200, 1) if quick else (50_000, 6_000, 3)
    with ExitStack() as stack:
        places = [_postgres(stack, durable=not quick), _sqlite(stack)]
        broker = stack.enter_context(kafka(quick=quick))
        web = stack.enter_context(Process()).call(sinks.serve)
        targets = [
            Target("to null", "null://", many),
            Target("to Kafka", broker.url, many),
            Target("to a function", f"local://{sinks.__name__}:{sinks.take.__name__}", many),
            Target("by HTTP", web, few),
        ]
        for place in places:
            for target in targets:
                yield _row(place, target, rounds)


def _postgres(stack: ExitStack, *, durable: bool) -> Place:
    place = stack.enter_context(shop(durable=durable))
    return Place(place.url, place.server, partial(backlog.fill, place.url), lambda: backlog.published(place.url))


def _sqlite(stack: ExitStack) -> Place:
    path = Path(stack.enter_context(TemporaryDirectory(prefix="postroom-bench-"))) / "shop.db"
    asyncio.run(migrate(path))
    name = f"SQLite {sqlite3.sqlite_version}, WAL, FULL"
    return Place(f"sqlite:///{path}", name, partial(bare_sqlite.fill, path), lambda: bare_sqlite.published(path))


def _row(place: Place, target: Target, rounds: int) -> Row:
    """First each setting made by hand has one try, then the best of them and the default take turns."""
    what = f"drain {target.number:,} {target.name} ({place.name})"
    with Process() as theirs, Process() as own:
        progress(f"{what}: which setting is best")
        best = max(BY_HAND, key=lambda config: _rate(place, target, config, theirs))
        pairs = take_turns(
            what,
            lambda: _rate(place, target, best, theirs),
            lambda: _rate(place, target, DEFAULT, own),
            rounds=rounds,
        )
    by_hand = f"{best.concurrency} × {best.first_batch:,} by hand"
    return Row(what=what, base=by_hand, ours="default", unit="msg/s", target=TARGET, **ratio(pairs))


def _rate(place: Place, target: Target, config: RelayConfig, process: Process) -> float:
    place.fill(target.number)
    work = engine.Work(store=place.url, to=target.url, published=target.number, config=config)
    seconds = process.call(engine.drain, work)
    if (published := place.published()) != target.number:
        raise AssertionError(f"{published:,} of {target.number:,} are published")
    return target.number / seconds
