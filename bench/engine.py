"""Ours: the relay as a user runs it, in a process of its own, timed by its own events."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from bench.publishers import publisher_for
from postroom.clock import monotonic
from postroom.config.values import RelayConfig, TableNames
from postroom.events import BatchClaimed, BatchSettled, Event, Listeners
from postroom.relay import Relay, Route
from postroom.relay.relay import tune_gc
from postroom.stores import open_store

BATCH, CONCURRENCY = 4_096, 6
"""The highest median of five settings, six rounds each (3,000 to 8,192 by 4 to 8), to Kafka, in turns with the bare loop;
others were ruled out on earlier states of the engine."""
SEND_TIMEOUT, LEASE = timedelta(seconds=30), timedelta(minutes=2)
PATIENCE_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What to drain, where to, and when it is done."""

    store: str
    to: str
    """A transport's URL, or the name of one of `bench.publishers`."""
    published: int
    """Done when so many are settled as published."""
    table: str = "outbox"
    batch: int = BATCH
    concurrency: int = CONCURRENCY
    config: RelayConfig | None = None
    """All of the relay's settings, instead of those two."""


@dataclass(slots=True)
class Stopwatch:
    """Runs from the relay's first claim that found something until enough is settled."""

    wanted: int
    done: Callable[[], None] = lambda: None
    seen: int = 0
    begin: float = field(default=float("inf"))
    end: float = 0.0

    def __call__(self, event: Event) -> None:
        match event:
            case BatchClaimed():
                self.begin = min(self.begin, monotonic() - event.seconds)
            case BatchSettled():
                self.seen += event.published
                if self.seen >= self.wanted and not self.end:
                    self.end = monotonic()
                    self.done()

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def drain(work: Work) -> float:
    """Drain it; the seconds from the first claim to the last commit that was needed."""
    tune_gc()
    logging.disable(logging.WARNING)  # that null:// throws messages away is what we are here for
    return asyncio.run(_drain(work))


def drain_for(work: Work, seconds: float) -> int:
    """Run for so long; how many were published."""
    tune_gc()
    logging.disable(logging.WARNING)
    return asyncio.run(_drain_for(work, seconds))


async def _drain_for(work: Work, seconds: float) -> int:
    watch = Stopwatch(sys.maxsize)
    listeners = Listeners()
    listeners.add(watch)
    async with open_store(work.store) as store, open_store(work.store) as heartbeat:
        relay = Relay(store, [Route(to=publisher_for(work.to))], heartbeat=heartbeat, listeners=listeners)
        asyncio.get_running_loop().call_later(seconds, relay.stop)
        await relay.run()
    return watch.seen


async def _drain(work: Work) -> float:
    by_hand = RelayConfig(batch=work.batch, concurrency=work.concurrency, send_timeout=SEND_TIMEOUT, lease=LEASE)
    config = work.config or by_hand
    tables = TableNames(prefix=work.table)
    watch = Stopwatch(work.published)
    listeners = Listeners()
    listeners.add(watch)
    async with open_store(work.store, tables=tables) as store, open_store(work.store, tables=tables) as heartbeat:
        route = Route(to=publisher_for(work.to), retry=config.retry)
        relay = Relay(store, [route], config=config, heartbeat=heartbeat, listeners=listeners)
        watch.done = relay.stop
        async with asyncio.timeout(PATIENCE_SECONDS):
            await relay.run()
    return watch.seconds
