"""How fast a store and a transport are with Postroom between them: fill, drain, latency.

Everything runs in this process, on tables that hold nothing else; who calls it makes them and takes them away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, Sent, TransportCapabilities
from postroom.errors import TransportUnavailable
from postroom.events import BatchClaimed, BatchSettled, Event, LanesTaken, Listeners
from postroom.message import Message
from postroom.relay import Relay, Route

if TYPE_CHECKING:
    from postroom.config.values import RelayConfig
    from postroom.contracts.store import Store
    from postroom.contracts.transport import Publisher

TYPE = "postroom.bench"
CHUNK = 1_000
"""How many messages are written in one transaction."""
PATIENCE_SECONDS = 60.0
"""How long the last messages may take before they count as lost."""
Tell = Callable[[int], None]
"""Told, now and then, how many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The messages: so many, over so many keys, with bodies of so many bytes.

    >>> message = Load(messages=100, keys=10, size=8).message(12)
    >>> message.key, message.body
    ('key-2', b'"xxxxxx"')
    """

    messages: int
    keys: int
    size: int

    def message(self, number: int) -> Message:
        """The message of this number."""
        return Message(TYPE, key=f"key-{number % self.keys}", body=b'"%s"' % (b"x" * (self.size - 2)))


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so long."""

    messages: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.messages / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Latency:
    """From each commit to the transport's answer, in seconds, the shortest first; and how long it all took."""

    took: Sequence[float]
    seconds: float

    def percentile(self, percent: int) -> float:
        """The time within which so many of a hundred were there.

        >>> Latency([1, 2, 3, 4], 0).percentile(50), Latency([1, 2, 3, 4], 0).percentile(99)
        (2, 4)
        """
        return self.took[max(ceil(len(self.took) * percent / 100), 1) - 1]


@dataclass(slots=True)
class Stopwatch:
    """Runs from a relay's first claim that found something to its last settle, and counts what was published."""

    tell: Tell
    published: int = 0
    begin: float | None = None
    end: float = 0.0

    def __call__(self, event: Event) -> None:
        match event:
            case BatchClaimed():
                self.begin = self.begin or monotonic() - event.seconds
            case BatchSettled():
                self.published, self.end = self.published + event.published, monotonic()
                self.tell(self.published)

    @property
    def rate(self) -> Rate:
        return Rate(self.published, self.end - (self.begin or self.end))


async def fill(store: Store, load: Load, tell: Tell) -> Rate:
    """Write the messages, a thousand in a transaction."""
    begin = monotonic()
    for start in range(0, load.messages, CHUNK):
        end = min(start + CHUNK, load.messages)
        await store.outbox.put([load.message(number) for number in range(start, end)])
        tell(end)
    return Rate(load.messages, monotonic() - begin)


async def drain(store: Store, heartbeat: Store, publisher: Publisher, config: RelayConfig, tell: Tell) -> Rate:
    """Carry everything that is there, from the first claim to the last settle; how many got through."""
    watch = Stopwatch(tell)
    route = Route(to=publisher, retry=config.retry)
    await Relay(store, [route], config=config, heartbeat=heartbeat, listeners=Listeners(watch)).drain()
    return watch.rate


async def latency(
    stores: tuple[Store, Store, Store], publisher: Publisher, config: RelayConfig, load: Load, rate: int, tell: Tell
) -> Latency:
    """Put so many a second while a relay runs. The stores are the relay's, its heartbeat's and the producer's."""
    store, heartbeat, producer = stores
    timed, owning = Timed(publisher, load.messages), asyncio.Event()

    def heard(event: Event) -> None:
        if isinstance(event, LanesTaken):
            owning.set()

    route = Route(to=timed, retry=config.retry)
    relay = Relay(store, [route], config=config, heartbeat=heartbeat, listeners=Listeners(heard))
    running = asyncio.create_task(relay.run())
    try:
        await _first(running, owning)
        begin = monotonic()
        committed = await _put_steadily(producer, load, rate, tell)
        await _first(running, timed.all)
        seconds = monotonic() - begin
    finally:
        relay.stop()
        await running
    if len(timed.sent) < load.messages:
        raise TransportUnavailable(
            f"Only {len(timed.sent):,} of {load.messages:,} messages were confirmed in time: look at the broker, and try again."
        )
    return Latency(sorted(timed.sent[each] - moment for each, moment in committed.items()), seconds)


async def _first(running: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait for the event, but not for longer than the relay runs, nor than anybody is patient."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([running, waiting], timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _put_steadily(producer: Store, load: Load, rate: int, tell: Tell) -> dict[object, float]:
    """The moment each commit returned, by the message's id."""
    committed: dict[object, float] = {}
    begin = monotonic()
    for number in range(load.messages):
        await asyncio.sleep(max(begin + number / rate - monotonic(), 0))
        message = load.message(number)
        await producer.outbox.put([message])
        committed[message.id] = monotonic()
        tell(number + 1)
    return committed


class Timed:
    """A publisher that notes when each message was confirmed, and passes everything on to another one."""

    def __init__(self, publisher: Publisher, expected: int) -> None:
        self._publisher, self._expected = publisher, expected
        self.sent: dict[object, float] = {}
        """The moment each message was first confirmed, by its id."""
        self.all = asyncio.Event()
        """Set once as many as expected are."""

    @property
    def capabilities(self) -> TransportCapabilities:
        return self._publisher.capabilities

    async def open(self) -> None:
        await self._publisher.open()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        outcomes = await self._publisher.publish(batch, timeout=timeout)
        now = monotonic()
        for envelope, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Sent):
                self.sent.setdefault(envelope.message.id, now)
        if len(self.sent) >= self._expected:
            self.all.set()
        return outcomes

    async def close(self) -> None:
        await self._publisher.close()
