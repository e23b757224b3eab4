"""`postroom bench`: how fast it is here, on your store and to your transport."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import replace

import click

from postroom.cli.bench.counter import Counter
from postroom.cli.bench.place import Place
from postroom.cli.bench.report import Report, write_report
from postroom.cli.options import store_options
from postroom.cli.output import write_json
from postroom.cli.session import Session
from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.ops import measure
from postroom.ops.measure import Load
from postroom.text import without_trace
from postroom.transports import open_publisher
from postroom.urls import redact

LATENCY_SECONDS = 5
"""How long the latency is looked at."""


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
