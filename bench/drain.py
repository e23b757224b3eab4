"""How fast a backlog drains, to the bare loop: PostgreSQL to Kafka, and to nowhere, where only the engine is left."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from bench import backlog, bare, bare_mongo, bare_mysql, bare_sqlite, engine
from bench.kafka import TOPIC, Kafka, kafka
from bench.others import mariadb, mongo
from bench.postgres import Shop, shop
from bench.process import Process
from bench.sqlite import migrate
from bench.table import Row, ratio, take_turns

TARGET = 0.6
OTHERS_TARGET = 0.5
RELAY = f"relay, {engine.CONCURRENCY} × {engine.BATCH:,}"
Drain = Callable[[Process], float]
"""Drains a backlog in that process; the seconds it took."""


def run(*, quick: bool) -> Iterator[Row]:
    """PostgreSQL to Kafka. Then, for information: beside a loop that does all at once; to nowhere, with the loop on our table
    and on one of its own; SQLite."""
    number, rounds = (2_000, 1) if quick else (100_000, 7)
    with shop(durable=not quick) as place:
        with kafka(quick=quick) as broker:
            yield _to_kafka(place, broker, number, rounds)
            yield _to_kafka(place, broker, number, min(rounds, 3), at_once=True)
        yield _to_null(place, number, rounds)
        yield _to_null(place, number, min(rounds, 3), plain=True)
    with TemporaryDirectory(prefix="postroom-bench-") as folder:
        yield _sqlite(Path(folder) / "shop.db", number, min(rounds, 3))


def run_others(*, quick: bool) -> Iterator[Row]:
    """MariaDB and MongoDB to nowhere, each to the bare loop written for it."""
    number, rounds = (2_000, 1) if quick else (50_000, 5)
    for place, loop in ((mariadb, bare_mysql), (mongo, bare_mongo)):
        with place() as shop:
            yield _other(shop, loop, number, rounds)


def _other(shop: Shop, loop: Any, number: int, rounds: int) -> Row:
    def base(process: Process) -> float:
        loop.fill(shop.url, number)
        return _checked(process.call(loop.to_null, shop.url), loop.published(shop.url), number)

    def ours(process: Process) -> float:
        loop.fill(shop.url, number)
        seconds = process.call(engine.drain, engine.Work(store=shop.url, to="null://", published=number))
        return _checked(seconds, loop.published(shop.url), number)

    what = f"drain {number:,} to null ({shop.server})"
    return _row(what, "bare loop", base, ours, number, rounds, target=OTHERS_TARGET)


def _to_kafka(place: Shop, broker: Kafka, number: int, rounds: int, *, at_once: bool = False) -> Row:
    what = f"drain {number:,} to Kafka ({place.server}; {broker.what})"

    def base(process: Process) -> float:
        backlog.fill(place.url, number)
        seconds = process.call(bare.to_kafka, place.url, broker.bootstrap, TOPIC, at_once=at_once)
        return _checked(seconds, backlog.published(place.url), number)

    name, target = ("bare loop, all at once", None) if at_once else ("bare loop", TARGET)
    return _row(what, name, base, _relay(place, broker.url, number), number, rounds, target=target)


def _to_null(place: Shop, number: int, rounds: int, *, plain: bool = False) -> Row:
    what = f"drain {number:,} to null ({place.server})"
    table = "plain" if plain else "outbox"

    def base(process: Process) -> float:
        backlog.fill(place.url, number)
        if plain:
            _make_plain(place)
        seconds = process.call(bare.to_null, place.url, table)
        return _checked(seconds, backlog.published(place.url, table=table), number)

    name = "bare loop, own table" if plain else "bare loop"
    return _row(what, name, base, _relay(place, "null://", number), number, rounds)


def _sqlite(path: Path, number: int, rounds: int) -> Row:
    asyncio.run(migrate(path))

    def base(process: Process) -> float:
        bare_sqlite.fill(path, number)
        return _checked(process.call(bare_sqlite.to_null, path), bare_sqlite.published(path), number)

    def ours(process: Process) -> float:
        bare_sqlite.fill(path, number)
        seconds = process.call(engine.drain, engine.Work(store=f"sqlite:///{path}", to="null://", published=number))
        return _checked(seconds, bare_sqlite.published(path), number)

    what = f"drain {number:,} to null (SQLite {sqlite3.sqlite_version}, WAL, FULL)"
    return _row(what, "bare loop", base, ours, number, rounds)


def _relay(place: Shop, to: str, number: int) -> Drain:
    def drain(process: Process) -> float:
        backlog.fill(place.url, number)
        seconds = process.call(engine.drain, engine.Work(store=place.url, to=to, published=number))
        return _checked(seconds, backlog.published(place.url), number)

    return drain


def _row(
    what: str, name: str, base: Drain, ours: Drain, number: int, rounds: int, *, target: float | None = None
) -> Row:
    with Process() as theirs, Process() as own:
        pairs = take_turns(what, lambda: number / base(theirs), lambda: number / ours(own), rounds=rounds)
    return Row(what=what, base=name, ours=RELAY, unit="msg/s", target=target, **ratio(pairs))


def _make_plain(place: Shop) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        for statement in bare.PLAIN_TABLE.split(";"):
            connection.execute(statement.encode())


def _checked(seconds: float, settled: int, number: int) -> float:
    """The time counts only when the work was done."""
    if settled != number:
        raise AssertionError(f"{settled:,} of {number:,} are published")
    return seconds
