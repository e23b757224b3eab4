"""How much a relay grows when nothing gets through: a million open messages behind a broker that is away, or that hangs.

The relay runs in a process of its own, with the batches that drain fastest; its resident memory is taken before it starts, when
everything is imported and the store is open, and then the highest it ever was, as the kernel keeps it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from bench import backlog
from bench.engine import BATCH, CONCURRENCY
from bench.postgres import Shop, shop
from bench.process import Process
from bench.publishers import Away, Blocked, Hangs
from bench.table import Row, progress, value
from postroom.config.values import RelayConfig
from postroom.relay import Relay, Route
from postroom.stores import open_store

TARGET_MB = 150.0
MILLION = 1_000_000
SEND_TIMEOUT = timedelta(seconds=2.5)
BROKERS: dict[type[Blocked], str] = {Away: "a broker that is away", Hangs: "a broker that hangs until its time-out"}


def run(*, quick: bool) -> Iterator[Row]:
    """A row per kind of broker."""
    number, seconds = (2_000, 1.0) if quick else (MILLION, 30.0)
    with shop(durable=not quick) as place:
        for broker, name in BROKERS.items():
            progress(f"writing {number:,} messages")
            backlog.fill(place.url, number)
            progress(f"a relay behind {name}, for {seconds:g} s")
            yield _row(place, broker, f"{number:,} open messages, {name} ({place.server})", seconds)


def _row(place: Shop, broker: type[Blocked], what: str, seconds: float) -> Row:
    with Process() as process:
        growth = process.call(grow, place.url, broker, seconds)
    if backlog.published(place.url):
        raise AssertionError("something got through")
    return value(what, f"relay, {CONCURRENCY} × {BATCH:,}", growth / 1e6, "MB", target=TARGET_MB)


def grow(url: str, broker: type[Blocked], seconds: float) -> int:
    """By how many bytes this process grows while its relay runs for so long."""
    logging.disable(logging.WARNING)
    return asyncio.run(_grow(url, broker, seconds))


async def _grow(url: str, broker: type[Blocked], seconds: float) -> int:
    config = RelayConfig(batch=BATCH, concurrency=CONCURRENCY, send_timeout=SEND_TIMEOUT)
    async with open_store(url) as store, open_store(url) as heartbeat:
        await store.schema.check()
        publisher = broker()
        route = Route(to=publisher, retry=config.retry)
        relay = Relay(store, [route], config=config, heartbeat=heartbeat)
        _forget_the_peak()
        before = _bytes("VmRSS")
        running = asyncio.create_task(relay.run())
        await asyncio.wait([running], timeout=seconds)
        growth = _bytes("VmHWM") - before
        relay.stop()
        await running
    if not publisher.asked:
        raise AssertionError("the relay sent nothing")
    return growth


def _forget_the_peak() -> None:
    """The kernel's high-water mark begins anew, where it lets us."""
    Path("/proc/self/clear_refs").write_text("5")


def _bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise AssertionError(name)
