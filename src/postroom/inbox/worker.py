"""InboxWorker: receives from a broker and handles, until it is stopped or nothing comes any more."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

from postroom.clock import monotonic, utcnow
from postroom.contracts.inbox import DeadQuery
from postroom.contracts.store import Store
from postroom.contracts.transport import Consumer, ConsumerOptions, Delivery, Identity
from postroom.errors import PostroomError, StoreUnavailable, TransportUnavailable
from postroom.inbox.handling import Again, Begin, Dead, Done, Handling, Result
from postroom.inbox.inbox import Handler, Inbox
from postroom.inbox.key_queues import KeyQueues, gather
from postroom.inbox.logs import tell_of_batch, tell_of_death, tell_of_failure
from postroom.inbox.suspects import Try, was_delivered_before
from postroom.inbox.tasks import Room, Tasks
from postroom.telemetry.failpoints import reach
from postroom.telemetry.tracing import received
from postroom.text import one_line
from postroom.threads import Threads
from postroom.transports import open_consumer
from postroom.transports import received as options_of

log = logging.getLogger(__name__)
Came = TypeVar("Came")
CONCURRENCY_DEFAULT = 16
RECEIVE_MAX = 1_000
WAIT = timedelta(seconds=0.5)
AWAY_FIRST, AWAY_MOST = 0.1, 5.0
"""How long to wait, in seconds, for a database or a broker that is away: doubling, from the first to the most."""
CARE_SECONDS = 2.0
"""How often requeued deliveries are looked for, and handlers that run long."""
PURGE_SECONDS = 3600.0
GRACE_DEFAULT = timedelta(seconds=30)
"""How long handlers may run on when it is told to end."""
LONG_SECONDS = 30.0
"""After so long somebody is told that a handler still runs, if it has no time limit of its own."""
REQUEUED: Final = object()
"""The token of a delivery that comes from the dead ones, not from the broker."""


@dataclass(slots=True)
class Tally:
    """What became of what was received."""

    received: int = 0
    done: Counter[str] = field(default_factory=Counter)
    """handled, known, skipped, failed, dead, abandoned."""


class InboxWorker:
    """Runs an inbox.

    ```python
    async with open_store(url) as store:
        await InboxWorker(inbox, store, open_consumer("kafka://broker:9092/orders")).run()
    ```
    """

    def __init__(
        self,
        inbox: Inbox,
        store: Store,
        consumer: Consumer,
        *,
        concurrency: int = CONCURRENCY_DEFAULT,
        grace: timedelta = GRACE_DEFAULT,
    ) -> None:
        self.tally = Tally()
        self._inbox, self._store, self._consumer = inbox, store.inbox, consumer
        self._threads = Threads("postroom-inbox")
        self._handling = Handling(inbox, store.inbox, self._threads, system=consumer.capabilities.name)
        self._room = Room(concurrency)
        self._lines = KeyQueues()
        self._ready: dict[int, deque[Hashable]] = {}
        """For each handler that takes many at once, and has somebody at work: the lines whose heads wait for it."""
        self._requeued: set[Identity] = set()
        self._stopping = asyncio.Event()
        self._tasks = Tasks(self._stopping.set)
        self._grace = grace
        self._opened = False
        self.last_done = 0.0
        """When something was last done with, in monotonic seconds."""

    def stop(self) -> None:
        """Ask it to end: it receives nothing more, finishes what is being handled, and gives the rest back to the broker.

        What still runs when the grace period is over is abandoned: rolled back, and not acknowledged."""
        self._stopping.set()

    async def open(self, *, patient: bool = False) -> bool:
        """Connect to the broker, so that what is published from now on is received; `run` does it by itself.

        A broker that is away raises TransportUnavailable; with *patient* it is waited for. False: it was stopped before."""
        if not self._opened and not self._stopping.is_set():
            await self._inbox.guard.open(self._inbox.name)
            connect = self._consumer.open
            await (self._patiently(connect, TransportUnavailable, "received") if patient else connect())
            self._opened = not self._stopping.is_set()
        return self._opened

    async def run(self, *, until_idle: timedelta | None = None) -> Tally:
        """Receive and handle until `stop`, or until nothing was received for *until_idle* and nothing is in flight."""
        await self.open()
        try:
            self._tasks.start(self._care())
            self._tasks.start(self._watch())
            await self._receive(until_idle)
        finally:
            self.stop()
            if abandoned := await self._tasks.end(self._grace):
                self.tally.done["abandoned"] += abandoned
            await self._consumer.close()
            await self._inbox.guard.close()
            self._threads.close()
        if self._tasks.broken is not None:
            raise self._tasks.broken
        return self.tally

    async def _receive(self, until_idle: timedelta | None) -> None:
        last, away = monotonic(), AWAY_FIRST
        while not self._stopping.is_set():
            begin = monotonic()
            try:
                deliveries = await self._received()
                away = AWAY_FIRST
            except TransportUnavailable as exc:
                log.warning("Nothing can be received: %s", one_line(str(exc)))
                await self._pause(away)
                away = min(2 * away, AWAY_MOST)
                continue
            if deliveries:
                last = monotonic()
                self.tally.received += len(deliveries)
                received(self._consumer.capabilities.name, deliveries, last - begin)
                reach("after-received")
                self._accept(deliveries)
            if until_idle is not None and not self._lines and monotonic() - last > until_idle.total_seconds():
                return

    async def _received(self) -> Sequence[Delivery]:
        """What comes next; none when it is stopped meanwhile."""
        receiving = asyncio.ensure_future(self._consumer.receive(RECEIVE_MAX, wait=WAIT))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                return receiving.result()
            return []
        finally:
            stopping.cancel()
            if not receiving.done():
                # What it would still bring goes back when the consumer is closed.
                receiving.cancel()
                with suppress(asyncio.CancelledError, TransportUnavailable):
                    await receiving

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        """Put each behind the others of its key; where it is the first, somebody begins."""
        for delivery in deliveries:
            if (key := self._lines.add(delivery)) is not None:
                self._begin(key)

    def _begin(self, key: Hashable) -> None:
        """A line that nobody works at: its head goes by itself, or with others."""
        handler = self._in_batches(self._lines.head(key))
        if handler is None:
            self._tasks.start(self._work(key))
        elif (ready := self._ready.get(id(handler))) is not None:
            ready.append(key)
        else:
            self._ready[id(handler)] = deque([key])
            self._tasks.start(self._work_in_batches(handler))

    def _in_batches(self, delivery: Delivery) -> Handler | None:
        """The handler that takes it with others, if one does."""
        if delivery.fault is not None or was_delivered_before(delivery):
            return None
        handler = self._inbox.handler_for(delivery.message.type)
        return handler if handler is not None and handler.batch is not None else None

    # ── one line ──

    async def _work(self, key: Hashable, *, singly: int = 0) -> None:
        """Handle a line, one after the other, until it is empty or the next goes with others; the first *singly* do not."""
        more, failures, put_off = True, 0, False
        while more and not self._stopping.is_set():
            delivery = self._lines.head(key)
            if singly <= 0 and self._in_batches(delivery):
                self._begin(key)
                return
            if not self._is_lost(delivery):
                # Whoever had it while it was put off may have failed, and that is on record.
                result = await self._tried(delivery, failed_before=failures > 0 or put_off)
                if isinstance(result, Again):
                    if result.attempts:
                        failures += 1
                        self.tally.done["failed"] += 1
                        tell_of_failure(delivery, result, most=self._inbox.retry.max_attempts, first=failures == 1)
                    else:  # another handles it now: that is no failure
                        put_off = True
                    await self._pause(result.after.total_seconds())
                    continue
                if result is None:
                    return
                if isinstance(result, Dead):
                    tell_of_death(delivery, result, first=failures == 0)
                await self._settled(delivery, result)
            singly, failures, put_off = singly - 1, 0, False
            more = self._lines.done(key)

    async def _tried(self, delivery: Delivery, *, failed_before: bool) -> Result | None:
        """What came of one try; None when it was stopped before.

        One that was delivered before is counted before it begins: it may be what killed the process that had it. That another
        has it in hand is no try."""
        is_suspect, is_requeued = self._handling.is_suspect(delivery), _is_requeued(delivery)
        chance: Try | Done | Dead | None = Try(alone=False)
        if is_suspect:
            chance = await self._patiently(partial(self._handling.look, delivery), StoreUnavailable, "handled")
            if isinstance(chance, Done) and is_requeued:
                is_suspect, chance = False, Try(alone=False)  # it is handled, and must not stay dead
        if not isinstance(chance, Try):
            return chance
        async with self._room.alone() if chance.alone else self._room.shared:
            begin = self._counting(delivery) if is_suspect else None
            handle = partial(
                self._handling.one,
                delivery,
                unbury=is_requeued,
                on_record=is_suspect or failed_before,
                begin=begin,
            )
            with self._tasks.holding([delivery]):
                return await self._patiently(handle, StoreUnavailable, "handled")

    def _counting(self, delivery: Delivery) -> Begin:
        """Counts the try of a suspect: once, however often it begins because the database was away."""
        tries: list[int] = []

        async def begin() -> bool:
            if not tries:
                tries.append(await self._handling.count(delivery))
            return tries[0] > 0 or _is_requeued(delivery)

        return begin

    async def _patiently(
        self, work: Callable[[], Awaitable[Came]], gone: type[PostroomError], what: str
    ) -> Came | None:
        """What came of it, however long the database or the broker is away; None when it was stopped before."""
        away = AWAY_FIRST
        while not self._stopping.is_set():
            try:
                return await work()
            except gone as exc:
                log.warning("Nothing can be %s: %s", what, one_line(str(exc)))
                await self._pause(away)
                away = min(2 * away, AWAY_MOST)
        return None

    async def _settled(self, delivery: Delivery, result: Done | Dead) -> None:
        self.tally.done[result.how if isinstance(result, Done) else "dead"] += 1
        self.last_done = monotonic()
        if _is_requeued(delivery):
            self._requeued.discard(delivery.identity)
        elif isinstance(result, Done):
            await self._consumer.ack([delivery])
        else:
            await self._consumer.terminate(delivery)

    def _is_lost(self, delivery: Delivery) -> bool:
        return not _is_requeued(delivery) and self._consumer.is_lost(delivery)

    # ── many at once ──

    async def _work_in_batches(self, handler: Handler) -> None:
        """Handle what is ready for this handler, as much as there is at once; what does not work goes one by one."""
        ready = self._ready[id(handler)]
        while ready and not self._stopping.is_set():
            batch = gather(
                self._lines,
                ready,
                handler.batch or 1,
                fits=lambda each: self._in_batches(each) is handler,
                is_lost=self._is_lost,
            )
            async with self._room.shared:
                if self._stopping.is_set():
                    return
                handle = partial(self._handling.many, handler, batch.deliveries)
                with self._tasks.holding(batch.deliveries):
                    worked = await self._patiently(handle, StoreUnavailable, "handled")
            if worked is None or isinstance(worked, str):  # None: it was stopped, and nobody begins
                if worked is not None:
                    tell_of_batch(batch.deliveries, worked)
                for key, count in batch.taken.items():
                    self._tasks.start(self._work(key, singly=count))
                continue
            self.tally.done.update(handled=len(worked), known=len(batch.deliveries) - len(worked))
            self.last_done = monotonic()
            await self._consumer.ack(batch.deliveries)
            for key, count in batch.taken.items():
                if self._lines.done(key, count):
                    self._begin(key)
        del self._ready[id(handler)]

    # ── what was requeued, and what is old ──

    async def _care(self) -> None:
        """Handle what a person requeued, and forget what is older than the retention; now and then."""
        purged = -PURGE_SECONDS
        while not self._stopping.is_set():
            with suppress(StoreUnavailable):
                await self._accept_requeued()
                if monotonic() - purged >= PURGE_SECONDS:
                    while await self._forget() and not self._stopping.is_set():
                        pass
                    purged = monotonic()
            await self._pause(CARE_SECONDS)

    async def _watch(self) -> None:
        """Tell of handlers that run long. By itself: what takes care may have to wait for just such a handler."""
        limit = self._inbox.timeout
        long = LONG_SECONDS if limit is None else limit.total_seconds()
        while not self._stopping.is_set():
            self._tasks.tell_of_long_ones(long)
            await self._pause(CARE_SECONDS)

    async def _forget(self) -> int:
        """Forget some of what this inbox handled longer ago than it remembers; how many."""
        return await self._store.purge(self._inbox.name, utcnow() - self._inbox.retention)

    async def _accept_requeued(self) -> None:
        """What a person requeued waits in its line like any other; nobody but us delivers it."""
        query = DeadQuery(consumer=self._inbox.name, requeued=True, limit=RECEIVE_MAX)
        for dead in await self._store.dead(query):
            delivery = Delivery(dead.message, dead.source, dead.topic, redelivered=1, token=REQUEUED)
            if delivery.identity not in self._requeued:
                self._requeued.add(delivery.identity)
                self._accept([delivery])

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until it is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def consumer_for(
    inbox: Inbox,
    source: str,
    *,
    group: str | None = None,
    prefetch: int | None = None,
    secrets: tuple[str, ...] = (),
    unsigned: bool = False,
    known_secrets: tuple[str, ...] = (),
) -> Consumer:
    """The consumer by which this inbox receives from there, in a group of the inbox's name unless another is given.

    *known_secrets* are those of the settings: they count where none are given, and senders to *source* sign.
    Raises ConfigError for a URL that nothing can be received from, and for an option that it cannot honour."""
    honoured = options_of(source)
    # A queue is one group by itself, in SQS and where a URL of AMQP names one: there the inbox's name is no option.
    name = group or (inbox.name if "group" in honoured else None)
    if not secrets and not unsigned and "secrets" in honoured:
        secrets = known_secrets
    return open_consumer(source, ConsumerOptions(group=name, prefetch=prefetch, secrets=secrets, unsigned=unsigned))


def _is_requeued(delivery: Delivery) -> bool:
    """Does it come from the dead ones?"""
    return delivery.token is REQUEUED
