"""`postroom bench`: how fast it is here, on your store and to your transport."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import click

from postroom.cli.bench import measure
from postroom.cli.bench.measure import Latency, Load, Rate
from postroom.cli.bench.place import Place
from postroom.cli.options import store_options
from postroom.cli.output import Column, write, write_json, write_table
from postroom.cli.session import Session
from postroom.clock import monotonic
from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.text import without_trace
from postroom.transports import open_publisher
from postroom.urls import redact

LATENCY_SECONDS = 5
"""How long the latency is looked at."""
EVERY_SECONDS = 0.1
"""How often the line on the terminal is rewritten, at most."""
COLUMNS = (
    Column("PHASE"),
    Column("MESSAGES", right=True),
    Column("TIME", right=True),
    Column("RATE", right=True),
    Column("", style="dim", flexible=True),
)


@click.command(short_help="Measure how fast a store and a transport are.")
@store_options
@click.option(
    "--to", "target", metavar="URL", default="null://", help="Where to: messages really go there. Default: null://."
)
@click.option(
    "--messages", type=click.IntRange(1), default=10_000, metavar="N", help="How many to drain. Default: 10,000."
)
@click.option("--keys", type=click.IntRange(1), default=1_000, metavar="N", help="Over how many keys. Default: 1,000.")
@click.option(
    "--size", type=click.IntRange(2), default=300, metavar="BYTES", help="How large each body is. Default: 300."
)
@click.option(
    "--batch",
    type=int,
    metavar="N",
    help="How many messages one claim takes at most. Default: 32, and more while they go quickly.",
)
@click.option("--concurrency", type=int, metavar="N", help="How many batches are in flight at once. Default: 4.")
@click.option(
    "--rate",
    type=click.IntRange(0, 10_000),
    default=100,
    metavar="N",
    help="Messages a second for the latency; 0 leaves it out. Default: 100.",
)
@click.option("--clean", is_flag=True, help="Only drop the tables that a killed run left behind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bench(
    session: Session, target: str, messages: int, keys: int, size: int, rate: int, clean: bool, as_json: bool
) -> None:
    """Measure here: how fast messages are written, how fast a backlog drains, and how long a message takes from the
    commit to the transport's answer. Everything runs in this one process, with the relay's settings as they are.

    Your messages are not touched: it makes tables of its own beside them, postroom_bench_…, and drops them at the end,
    also after Ctrl-C. With --to the messages, of the type postroom.bench, really go there; POSTROOM_TO is not read.

    \b
    Examples:
      postroom bench --store sqlite:///bench.db
      postroom bench --store postgresql://app@db/shop --batch 1000 --concurrency 2
      postroom bench --to https://shop.example/hooks --messages 1000 --json
    """
    place = Place.of(session)
    if clean:
        asyncio.run(place.clean())
        return
    # That null:// throws messages away is what it is here for.
    logging.getLogger("postroom.transports.null").setLevel(logging.ERROR)
    load = Load(messages=messages, keys=keys, size=size)
    try:
        report = asyncio.run(_bench(place, target, load, session.settings.relay, rate))
    except asyncio.CancelledError:
        raise click.Abort from None
    if as_json:
        write_json(report.as_json())
    else:
        write_report(report)


async def _bench(place: Place, target: str, load: Load, config: RelayConfig, rate: int) -> Report:
    if (task := asyncio.current_task()) is not None:
        # SIGTERM ends it as Ctrl-C does: the tables go first.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    publisher = open_publisher(target)
    report = Report(store=place.shown_url, to=redact(target), load=load, config=config)
    async with place.stores() as (store, heartbeat, producer):
        with Counter("fill", load.messages) as counter:
            report.fill = await measure.fill(producer, load, counter)
        with Counter("drain", load.messages) as counter:
            report.drain = await measure.drain(store, heartbeat, publisher, config, counter)
        await _check(store, load)
        if rate:
            flow = replace(load, messages=min(load.messages, LATENCY_SECONDS * rate))
            stores, publisher = (store, heartbeat, producer), open_publisher(target)
            with Counter("latency", flow.messages) as counter:
                report.latency = await measure.latency(stores, publisher, config, flow, rate, counter)
    return report


async def _check(store: Store, load: Load) -> None:
    """A rate means nothing when messages were refused."""
    if dead := (await store.ops.counts()).by_status.get("dead", 0):
        (one,) = await store.ops.find(Query(status="dead", limit=1))
        said = f"{one.last_error_code}: {without_trace(one.last_error or '')}".rstrip(": ")
        raise click.ClickException(f"{dead:,} of {load.messages:,} messages did not get through ({said})")


class Counter:
    """How far a phase has come: called with how many are done, it rewrites a line on stderr, if that is a terminal."""

    def __init__(self, doing: str, total: int) -> None:
        self._doing, self._total = doing, total
        self._shown = 0.0
        self._shows = sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        now = monotonic()
        if self._shows and now - self._shown > EVERY_SECONDS:
            self._shown = now
            self._write(f"{self._doing} {done:,} of {self._total:,}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shows:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


# ── what it found ──


@dataclass(slots=True, kw_only=True)
class Report:
    """Where, with what, and what came out. A phase that was left out is None."""

    store: str
    to: str
    load: Load
    config: RelayConfig
    fill: Rate | None = None
    drain: Rate | None = None
    latency: Latency | None = None

    def as_json(self) -> dict[str, Any]:
        """One object, its phases by name."""
        return {
            "store": self.store,
            "to": self.to,
            "messages": self.load.messages,
            "keys": self.load.keys,
            "size": self.load.size,
            "batch": self.config.first_batch,
            "batch_max": self.config.largest_batch,
            "concurrency": self.config.concurrency,
            "fill": _rate_as_json(self.fill),
            "drain": _rate_as_json(self.drain),
            "latency": _latency_as_json(self.latency),
        }


def write_report(report: Report) -> None:
    """The table."""
    load = report.load
    write(f"{report.store} to {report.to}: {load.size:,} bytes a message, {load.keys:,} keys")
    write_table(COLUMNS, list(_rows(report)))


def _rows(report: Report) -> Iterator[Sequence[str]]:
    if report.fill:
        yield _row("fill", report.fill, "a thousand in a transaction")
    if report.drain:
        yield _row("drain", report.drain, f"{report.config.concurrency} batches of {_size(report.config)} at once")
    if (latency := report.latency) is not None:
        p50, p99, most = (f"{1000 * each:.1f} ms" for each in _figures(latency))
        said = f"p50 {p50}, p99 {p99}, longest {most}, from the commit to the answer"
        yield _row("latency", Rate(len(latency.took), latency.seconds), said)


def _size(config: RelayConfig) -> str:
    first, largest = config.first_batch, config.largest_batch
    return f"{first:,}" if first == largest else f"{first:,} to {largest:,}"


def _row(phase: str, rate: Rate, said: str) -> Sequence[str]:
    return (phase, f"{rate.messages:,}", f"{rate.seconds:.2f} s", f"{rate.per_second:,.0f}/s", said)


def _figures(latency: Latency) -> tuple[float, float, float]:
    return latency.percentile(50), latency.percentile(99), latency.took[-1]


def _rate_as_json(rate: Rate | None) -> dict[str, Any] | None:
    if rate is None:
        return None
    return {"messages": rate.messages, "seconds": round(rate.seconds, 6), "per_second": round(rate.per_second, 1)}


def _latency_as_json(latency: Latency | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    p50, p99, most = (round(1000 * each, 3) for each in _figures(latency))
    return {"messages": len(latency.took), "p50_ms": p50, "p99_ms": p99, "max_ms": most}
