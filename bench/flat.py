"""Is the rate the same when things are not as nice? PostgreSQL to null, each beside the plain run, on one server.

- *a million behind*: as many published rows are in the table already;
- *a held snapshot*: another session holds a REPEATABLE READ snapshot from before the drain until its end, so that the
  server may clean up nothing of what the drain leaves behind;
- *a hot key*: as many messages again, of one key that always fails, stand between the others. The rate is that of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import psycopg

from bench import backlog, engine
from bench.postgres import Shop, shop
from bench.process import Process
from bench.table import Row, progress, ratio, take_turns
from postroom.config.values import TableNames
from postroom.stores import open_store

TARGET = 0.7
MILLION = 1_000_000
FULL = "full"
"""The table with the published rows; the plain run is in another, empty one."""


def run(*, quick: bool) -> Iterator[Row]:
    """A row each."""
    number, behind, rounds = (2_000, 5_000, 1) if quick else (100_000, MILLION, 5)
    with shop(durable=not quick) as place:
        plain = _drain(place, number)
        yield _row(place, f"{behind:,} published behind", plain, _behind(place, number, behind), number, rounds)
        held = _drain(place, number, during=lambda: _snapshot(place))
        yield _row(place, "a snapshot held open", plain, held, number, rounds)
        yield _row(place, "one failing key, half of all", plain, _hot(place, number), number, rounds)


Drain = Callable[[Process], float]


def _drain(place: Shop, number: int, *, during: Callable[[], AbstractContextManager[None]] = nullcontext) -> Drain:
    def drain(process: Process) -> float:
        backlog.fill(place.url, number)
        with during():
            seconds = process.call(engine.drain, engine.Work(store=place.url, to="null://", published=number))
        return _checked(seconds, place, number)

    return drain


def _behind(place: Shop, number: int, behind: int) -> Drain:
    """The rows behind are written once; what a round drains joins them."""
    progress(f"writing {behind:,} published messages")
    asyncio.run(_migrate(place.url))
    backlog.fill(place.url, behind, table=FULL)
    backlog.publish_all(place.url, table=FULL)

    def drain(process: Process) -> float:
        backlog.fill(place.url, number, table=FULL, behind=True)
        work = engine.Work(store=place.url, to="null://", published=number, table=FULL)
        return process.call(engine.drain, work)

    return drain


def _hot(place: Shop, number: int) -> Drain:
    def drain(process: Process) -> float:
        backlog.fill(place.url, 2 * number, hot=True)
        seconds = process.call(engine.drain, engine.Work(store=place.url, to="HotKeyFails", published=number))
        return _checked(seconds, place, number)

    return drain


def _checked(seconds: float, place: Shop, number: int) -> float:
    """The time counts only when the work was done, and nothing else."""
    if (settled := backlog.published(place.url)) != number:
        raise AssertionError(f"{settled:,} are published, not {number:,}")
    return seconds


def _row(place: Shop, name: str, plain: Drain, other: Drain, number: int, rounds: int) -> Row:
    what = f"drain {number:,} to null, {name} ({place.server})"
    with Process() as base, Process() as ours:
        pairs = take_turns(what, lambda: number / plain(base), lambda: number / other(ours), rounds=rounds)
    return Row(what=what, base="plain", ours=name, unit="msg/s", target=TARGET, **ratio(pairs))


@contextmanager
def _snapshot(place: Shop) -> Iterator[None]:
    with psycopg.connect(place.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM outbox WHERE seq < 0")
        yield
        connection.execute("SELECT 1")  # still there: the snapshot was held to the end


async def _migrate(url: str) -> None:
    async with open_store(url, tables=TableNames(prefix=FULL)) as store:
        await store.schema.migrate()
