"""The world of a scene: a store in memory behind doors that can be shut, a broker that does as it is told, and relays.

The broker is also the watchman: each message that is sent must stand in a claim of that very relay, in a lane whose lease
has not run out (invariants I0 and I12 of the model). And whoever was claimed as the only one must be the only one (R8)."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any, cast

from postroom.clock import utcnow
from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query, Record
from postroom.contracts.store import Store
from postroom.contracts.transport import (
    KEY_STOPPED,
    NOT_STARTED,
    Envelope,
    Failed,
    Outcome,
    Sent,
    TransportCapabilities,
)
from postroom.errors import StoreUnavailable
from postroom.message import Message
from postroom.retry import RetryPolicy, Table
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox, Row
from postroom.testing.journal import Delivery, Name, Run, check

LEASE, SEND = 6.0, 1.0
CONFIG = RelayConfig(
    lease=timedelta(seconds=LEASE),
    send_timeout=timedelta(seconds=SEND),
    poll=timedelta(seconds=0.1),
    batch=10,
    concurrency=3,
)
TRIES = 3
RETRY = RetryPolicy(Table((timedelta(seconds=0.5),)), max_attempts=TRIES)


class Door:
    """The store, as one relay reaches it: an answer may be lost, a call refused, the door be shut."""

    def __init__(self, store: MemoryStore) -> None:
        self._played = store.outbox  # in memory one object plays every part
        self.outbox = self.lanes = self.ops = self.schema = self
        self.capabilities = store.capabilities
        self.shut = False
        self.next: defaultdict[str, deque[str]] = defaultdict(deque)
        """What happens to the next calls of a method: "refused" (nothing is done) or "lost" (done, but no answer)."""
        self.slow: dict[str, float] = {}
        """How long the answers of a method travel."""
        self.lingers = 0.0
        """How long it takes to break off a call that is cancelled."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._played, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            fate = self.next[name].popleft() if self.next[name] else ""
            if self.shut or fate == "refused":
                await asyncio.sleep(0.01)
                raise StoreUnavailable(f"{name}: nobody answers")
            answer = await method(*args, **kwargs)
            try:
                await asyncio.sleep(self.slow.get(name, 0.001))
            except asyncio.CancelledError:
                await asyncio.sleep(self.lingers)
                raise
            if fate == "lost":
                raise StoreUnavailable(f"{name}: the answer was lost")
            return answer

        return call


Script = Callable[[Message, int], "Outcome | Answer | None"]


class Answer:
    """What the broker does with a message beyond answering: how long it takes, and whether it has its effect."""

    def __init__(self, outcome: Outcome | None = None, *, seconds: float = 0.0, effect: bool = True) -> None:
        self.outcome, self.seconds, self.effect = outcome or Sent(), seconds, effect


class Broker:
    """The publisher of one relay."""

    capabilities = TransportCapabilities(name="scene", durable=True, ordered=True, batches=True)

    def __init__(self, world: World, relay: str, script: Script) -> None:
        self._world, self._relay, self._script = world, relay, script

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        lines: defaultdict[object, list[int]] = defaultdict(list)
        for place, envelope in enumerate(batch):
            lines[envelope.message.key or place].append(place)
        outcomes: list[Outcome] = [KEY_STOPPED] * len(batch)
        clock = asyncio.get_running_loop()
        last_start = clock.time() + timeout.total_seconds() / 2

        async def line(places: Sequence[int]) -> None:
            for place in places:
                in_time = clock.time() <= last_start
                outcomes[place] = await self._send(batch[place].message) if in_time else NOT_STARTED
                if not isinstance(outcomes[place], Sent):
                    return

        await asyncio.gather(*(line(places) for places in lines.values()))
        return outcomes

    async def _send(self, message: Message) -> Outcome:
        self._world.watch(self._relay, message)
        self._world.asked[message.data] += 1
        answer = self._script(message, self._world.asked[message.data])
        if not isinstance(answer, Answer):
            answer = Answer(answer, effect=answer is None)
        with self._world.on_its_way(self._relay, message):
            await asyncio.sleep(answer.seconds or 0.001)
        if answer.seconds <= SEND:
            self._world.watch(self._relay, message)
        if answer.effect:
            self._world.journal.append(Delivery(Name(str(message.key), message.data), self._relay))
        return answer.outcome


class World:
    """A store, relays, and what was delivered."""

    def __init__(self, relay: ModuleType, outbox: type[MemoryOutbox] = MemoryOutbox, *, lanes: int = 1) -> None:
        self._module = relay
        self.store = MemoryStore(outbox(lanes))
        self.journal: list[Delivery] = []
        self.asked: Counter[Any] = Counter()
        self.doors: dict[str, tuple[Door, Door]] = {}
        self.relays: dict[str, Any] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.wrong: list[str] = []
        self._sending: defaultdict[str, list[Message]] = defaultdict(list)
        """What each relay is sending now."""
        self._put: list[Name] = []

    # ── what a scene does ──

    async def put(self, *keys: str, type: str = "order.paid", **fields: Any) -> list[Message]:
        """A message for each key, with the next number as its data."""
        messages = []
        for key in keys:
            message = Message(type, key=key, data=len(self._put), **fields)
            self._put.append(Name(key, message.data))
            messages.append(message)
        await self.store.outbox.put(messages)
        return messages

    def start(self, name: str, *scripts: Script, patterns: Sequence[str] = ("*",), park: bool = True) -> Any:
        """Start a relay, with a route for each script."""
        work, heart = Door(self.store), Door(self.store)
        scripts = scripts or (well,)
        routes = [
            self._module.Route(to=Broker(self, name, script), pattern=pattern, retry=RETRY, park=park, name=pattern)
            for script, pattern in zip(scripts, patterns, strict=True)
        ]
        relay = self._module.Relay(
            cast("Store", work), routes, config=CONFIG, name=name, heartbeat=cast("Store", heart)
        )
        self.doors[name], self.relays[name] = (work, heart), relay
        self.tasks[name] = asyncio.get_running_loop().create_task(relay.run())
        return relay

    async def stop(self, name: str) -> None:
        self.relays[name].stop()
        async with asyncio.timeout(60):
            await self.tasks[name]

    def cut_off(self, name: str, *, shut: bool = True) -> None:
        """The relay reaches the database no more, or again."""
        for door in self.doors[name]:
            door.shut = shut

    async def until(self, happened: Callable[[], object], *, seconds: float = 120) -> None:
        """Wait for it; what the watchman saw meanwhile ends the scene."""
        try:
            async with asyncio.timeout(seconds):
                while not happened():
                    self.look_for_the_broken()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"it did not happen in {seconds} s: {self.statuses()}") from None
        assert not self.wrong, self.wrong[0]

    def look_for_the_broken(self) -> None:
        """A relay that ends with an error of its own is no scene's business: it is a bug, or a mutant that cannot live."""
        for task in self.tasks.values():
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise RuntimeError("a relay broke") from error

    # ── what is known ──

    def records(self) -> list[Record]:
        return [self.store.outbox._record_of(row) for row in self.store.outbox._matching(Query())]

    def statuses(self) -> list[str]:
        return [record.status for record in self.records()]

    def tries(self) -> list[int]:
        return [record.attempts for record in self.records()]

    def delivered(self) -> list[int]:
        return [delivery.name.number for delivery in self.journal]

    def settled(self) -> bool:
        return all(row.settled_at is not None for row in self.store.outbox._rows.values())

    def watch(self, relay: str, message: Message) -> None:
        """Called when a send begins, and when it ends in its time."""
        owner, row = self.relays[relay].owner, self._row_of(message)
        lane, flight = self.store.outbox._lanes[row.lane], self.store.outbox._in_flight(row)
        if flight is None or flight[0].owner != owner or flight[0].epoch != lane.epoch:
            self.wrong.append(f"{relay} sends {message.data}, which is in no claim of its own")
        elif lane.lease_until is not None and lane.lease_until <= utcnow():
            self.wrong.append(f"{relay} sends {message.data} after its lease ran out")

    @contextmanager
    def on_its_way(self, relay: str, message: Message) -> Iterator[None]:
        """While it is sent. What was claimed as the only one has no other beside it (R8)."""
        sending = self._sending[relay]
        sending.append(message)
        if len(sending) > 1 and any(map(self._is_alone, sending)):
            self.wrong.append(
                f"{relay} sends {[each.data for each in sending]} at once, one of which is said to be alone"
            )
        try:
            yield
        finally:
            sending.remove(message)

    def _is_alone(self, message: Message) -> bool:
        flight = self.store.outbox._in_flight(self._row_of(message))
        return flight is not None and flight[0].id in self.store.outbox._alone

    def _row_of(self, message: Message) -> Row:
        (row,) = [row for row in self.store.outbox._rows.values() if row.message.id == message.id]
        return row

    def check(self, **faults: int) -> None:
        """The judge of every run, and the watchman. *faults*: m3=1 for message 3."""
        assert not self.wrong, self.wrong[0]
        found = {Name(str(record.message.key), record.message.data): record.status for record in self.records()}
        counted = {name: faults.get(f"m{name.number}", 0) for name in self._put}
        check(Run(put=self._put, journal=self.journal, found=found, faults=counted))


def well(message: Message, time: int) -> Outcome | Answer | None:
    """A broker that takes everything."""
    return None


def failing(*numbers: int, times: int = 1_000, outcome: Outcome | None = None) -> Script:
    """A broker that fails these messages so many times."""
    return lambda message, time: (outcome or Failed("NO")) if message.data in numbers and time <= times else None
