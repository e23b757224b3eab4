"""How long a message takes from the commit to its handler, at 100 a second, and after a quiet time.

The producer is one process: BEGIN, put, COMMIT, and the moment COMMIT returned. The relay is another, as `postroom relay` sets
it up by default, to a plain function; the function notes the moment it is called. Both read CLOCK_MONOTONIC, which all
processes share on Linux. The first second is not counted.

The host is shared: of several runs the calmest counts, by the share of stolen time, never by what came out.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from bench.listening import listen
from bench.postgres import shop
from bench.process import Process
from bench.producing import Plan, produce
from bench.sqlite import migrate
from bench.steal import Steal
from bench.table import Row, progress, value
from postroom.stores import open_store

P50_MS, P99_MS = 10.0, 50.0
PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Run:
    """What one run found, in milliseconds."""

    steal: float
    flow: list[float]
    lone: list[float]


def run(*, quick: bool) -> Iterator[Row]:
    """SQLite and PostgreSQL: p50 and p99 at 100 a second; and a lone message, for information."""
    plan = Plan(warm=5, flow=20, lone=1, quiet=0.3) if quick else Plan(warm=100, flow=1_000, lone=5, quiet=2.0)
    for opened in (_sqlite, _postgres):
        with opened(durable=not quick) as (url, what):
            runs = [_run(url, plan, f"{what}: run {number}") for number in range(1 if quick else 5)]
        yield from _rows(min(runs, key=lambda each: each.steal), what)


def _rows(calmest: Run, what: str) -> Iterator[Row]:
    where = f"({what}; {calmest.steal:.1%} stolen)"
    p99 = quantiles(calmest.flow, n=100, method="inclusive")[-1]
    yield value(f"commit to handler, p50 at 100/s {where}", "relay", median(calmest.flow), "ms", target=P50_MS)
    yield value(f"commit to handler, p99 at 100/s {where}", "relay", p99, "ms", target=P99_MS)
    yield value(f"commit to handler, a lone message after quiet {where}", "relay", median(calmest.lone), "ms")


def _run(url: str, plan: Plan, what: str) -> Run:
    progress(f"latency, {what}")
    with Process() as relay, Process() as producer:
        relay.begin(listen, url, plan.total)
        asyncio.run(_until_owned(url))
        with Steal() as steal:
            committed = producer.call(produce, url, plan)
            handled: list[float] = relay.answer()
    took = [1000 * (there - here) for here, there in zip(committed, handled, strict=True)][plan.warm :]
    return Run(steal.share, took[: plan.flow], took[plan.flow :])


async def _until_owned(url: str) -> None:
    """Wait until the relay has all the lanes."""
    async with open_store(url) as store, asyncio.timeout(PATIENCE_SECONDS):
        while any(lane.owner is None for lane in await store.lanes.all()):
            await asyncio.sleep(0.05)


@contextmanager
def _sqlite(*, durable: bool) -> Iterator[tuple[str, str]]:  # noqa: ARG001 - it always is
    with TemporaryDirectory(prefix="postroom-bench-") as folder:
        path = Path(folder) / "shop.db"
        asyncio.run(migrate(path))
        yield f"sqlite:///{path}", f"SQLite {sqlite3.sqlite_version}, WAL, FULL"


@contextmanager
def _postgres(*, durable: bool) -> Iterator[tuple[str, str]]:
    with shop(durable=durable) as place:
        yield place.url, place.server
