"""The relay: takes batches from a source of claims, carries and settles them, several at once, until stopped or drained."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from postroom.clock import monotonic
from postroom.config.values import RelayConfig, Settings
from postroom.contracts.lanes import RelayInfo
from postroom.contracts.outbox import Claim, Published, Verdict
from postroom.contracts.store import Store
from postroom.errors import ConfigError, PostroomError, StoreError, StoreUnavailable
from postroom.events import Listeners
from postroom.handles import nearby
from postroom.relay.batch_size import BatchSize, Trip
from postroom.relay.breaker import Breakers, grace
from postroom.relay.claims import ClaimSource, LaneClaims, Turn
from postroom.relay.heartbeat import Heartbeat
from postroom.relay.owned_lanes import OwnedLanes
from postroom.relay.routes import Route, Routes, routes_from
from postroom.relay.sender import Sender
from postroom.relay.settler import Settler
from postroom.relay.verdict import lost_with_its_relay
from postroom.stores import must_exist, open_store

QUIET_SECONDS = 1.0
"""With a route that is shut, a drain ends when nothing has moved for so long, or three of the longest looks."""
PROBE = 1
"""How many messages are claimed to ask whether the brokers are back."""
GC_THRESHOLDS = (100_000, 20, 100)
"""How many new objects there may be before Python looks for circles among them. Its own 700 means a look several times
per batch; messages make no circles, and are gone when their batch is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What is left when nothing can move without a person."""

    dead: int
    parked: int
    shut: tuple[str, ...] = ()
    """The routes that are shut until a person acts: their messages are still open."""


class Relay:
    """Carries messages from a store to brokers.

    ```python
    async with open_store(url) as store:
        await Relay(store, [Route(to=publisher)]).run()
    ```
    """

    def __init__(
        self,
        store: Store,
        routes: Sequence[Route],
        *,
        config: RelayConfig | None = None,
        name: str | None = None,
        heartbeat: Store | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.config = config or RelayConfig()
        # Unique per start: a name alone would let a relay's ghost act in the name of its successor (R2).
        label = name or f"{socket.gethostname()}:{os.getpid()}"
        self.owner = f"{label}:{secrets.token_hex(4)}"
        self._store = store
        self._listeners = listeners or Listeners()
        self._owned = OwnedLanes()
        table = Routes(routes)
        self._breakers = Breakers(table, self._listeners)
        timeout, lease = self.config.send_timeout, self.config.lease
        self._send_seconds = (timeout + grace(timeout)).total_seconds()
        self._sender = Sender(table, self._breakers, timeout, no_route_waits=self.config.no_route == "wait")
        self._settler = Settler(store, lease / 2, self._listeners)
        info = RelayInfo(owner=self.owner, name=label, host=socket.gethostname(), pid=os.getpid(), version=_version())
        lost = lost_with_its_relay(table.first.retry, park=table.first.park)
        self._heartbeat = Heartbeat(heartbeat or store, info, self._owned, lease, lost, self._listeners)
        self._batch = BatchSize(
            self.config.first_batch, self.config.largest_batch, send_timeout=timeout.total_seconds()
        )
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._source: ClaimSource = LaneClaims(
            store,
            self.owner,
            self._owned,
            self.config,
            lost,
            self._listeners,
            send_seconds=self._send_seconds,
            changed=self._changed.set,
            nudge=self._heartbeat.nudge,
        )
        self._trips: dict[asyncio.Task[None], Turn] = {}
        """What is under way."""
        self._broken: BaseException | None = None

    def stop(self) -> None:
        """Ask it to end: it claims nothing more, settles what was sent, and hands the lanes back."""
        self._stopping.set()
        self._changed.set()
        self._heartbeat.nudge()

    async def run(self) -> None:
        """Carry messages until `stop`."""
        await self._run(drain=False)

    async def drain(self) -> Drained:
        """Carry messages until nothing can move without a person; return what is left then."""
        if self.config.no_route == "wait":
            raise ConfigError(
                'A drain would not end while messages wait for a route: set no_route = "dead" for it, or run without drain.'
            )
        await self._run(drain=True)
        counts = await self._store.ops.counts()
        return Drained(dead=counts.by_status.get("dead", 0), parked=counts.parked, shut=self._breakers.shut)

    async def _run(self, *, drain: bool) -> None:
        await self._breakers.open(self.config.send_timeout)
        beating = asyncio.create_task(self._heartbeat.run(self._stopping, self._changed.set))
        beating.add_done_callback(self._heart_stopped)
        watching = asyncio.create_task(self._source.run())
        try:
            with nearby.told(self._source.look):
                await self._pump(drain=drain)
        finally:
            self.stop()
            watching.cancel()
            await asyncio.gather(*self._trips, beating, watching, return_exceptions=True)
            with suppress(StoreError):
                await self._heartbeat.leave()
            await self._breakers.close()
        if self._broken is not None:
            raise self._broken

    async def _pump(self, *, drain: bool) -> None:
        """Start a trip whenever there may be something and there is room; else wait for whatever changes that."""
        while not self._stopping.is_set():
            self._changed.clear()
            with suppress(StoreUnavailable):
                if await self._start_trip():
                    continue
                if drain and not self._trips and await self._is_drained():
                    return
            await self._wait()

    async def _start_trip(self) -> bool:
        """Give the next turn to a task, if there is room, a broker that may be asked, and something to claim; whether it was.

        Where nothing else may be in flight beside it, none is, from before its claim until after its settle (R8)."""
        if self._source.next_is_alone and self._trips:
            await asyncio.wait(self._trips)
        room = self.config.concurrency - len(self._trips)
        if room < 1 or self._breakers.shut_for(monotonic()) or self._stopping.is_set():
            return False
        turn = await self._source.next(room)
        if turn is None:
            return False
        task = asyncio.create_task(self._trip(turn, PROBE if self._breakers.away() else self._batch.size))
        self._trips[task] = turn
        task.add_done_callback(self._done)
        if turn.alone:
            await asyncio.wait([task])
        return True

    async def _trip(self, turn: Turn, limit: int) -> None:
        """Claim at most so many messages of this turn, and carry what was found."""
        found = await self._source.claim(turn, limit)
        if found.back:
            await self._close(found.back, {})
        if found.clean:
            await self._carry(found.clean, None if turn.suspects else limit)
        if found.suspects:
            await self._carry(found.suspects)

    async def _carry(self, claims: Sequence[Claim], asked: int | None = None) -> None:
        """Send and settle one batch, of a claim that asked for so many. No transaction is open while anything is sent."""
        begin = monotonic()
        verdicts = await self._sender.carry(claims, self._may_send)
        # While the brokers are away nothing is learned: what they refuse at once is not quick, it is not sent.
        if asked is not None and not self._batch.is_fixed and not self._breakers.away():
            self._batch.learn(_trip_of(claims, verdicts, asked, monotonic() - begin))
        # R19: the batch is closed; from here on only the settle is repeated.
        await self._close(claims, verdicts)

    async def _close(self, claims: Sequence[Claim], verdicts: Mapping[int, Verdict]) -> None:
        """Settle the batch, and let go of it."""
        self._source.settled(claims, await self._settler.settle(claims, verdicts, self._source.is_mine))

    def _may_send(self, claim: Claim) -> bool:
        return self._source.is_mine(claim, self._send_seconds)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._source.ended(self._trips.pop(task), cancelled=task.cancelled())
        self._changed.set()
        self._end_if_broken(task)

    def _heart_stopped(self, task: asyncio.Task[None]) -> None:
        """R26: without a heartbeat no lane is kept, and none is given up."""
        if task.cancelled() and not self._stopping.is_set():
            self._broken = self._broken or PostroomError(
                "The relay's heartbeat was cancelled, but the relay was not stopped: start it again, and look for code that "
                "cancels tasks which are not its own."
            )
            self.stop()
        self._end_if_broken(task)

    def _end_if_broken(self, task: asyncio.Task[None]) -> None:
        """Neither a broker that is away nor a database: end loudly, rather than go on without a heartbeat or a batch."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self.stop()

    async def _is_drained(self) -> bool:
        """Can nothing move without a person? What is left is parked, or waits for a route that is shut."""
        patience = max(QUIET_SECONDS, 3 * self._source.longest_look)
        return self._sender.is_stuck(monotonic(), patience) or await self._source.is_drained()

    async def _wait(self) -> None:
        """Until something changes; or until it is time to look again."""
        now = monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._breakers.shut_for(now) or self._source.next_look(now)):
                await self._changed.wait()


@asynccontextmanager
async def relay_from(
    settings: Settings,
    *,
    routes: Sequence[Route] | None = None,
    name: str | None = None,
    listeners: Listeners | None = None,
) -> AsyncIterator[Relay]:
    """The relay that these settings describe, on two stores: one for messages, and one for its heartbeat, which must not wait
    for its turn behind them. Run it inside; afterwards the stores are closed.

    Raises SchemaMismatch, with the command to type, unless the tables are there; StoreUnavailable while the database is away;
    ConfigError where the settings name no store, or nowhere to go."""
    if not settings.store:
        raise ConfigError('A relay needs a store: set POSTROOM_STORE, or write store = "…" in postroom.toml.')
    routes = routes_from(settings) if routes is None else routes
    if not routes:
        raise ConfigError("A relay needs somewhere to go: set POSTROOM_TO, or write [[routes]] in postroom.toml.")
    must_exist(settings.store)
    called = name or f"{socket.gethostname()}:{os.getpid()}"
    async with (
        open_store(settings.store, tables=settings.tables, name=called) as store,
        open_store(settings.store, tables=settings.tables, name=called) as heartbeat,
    ):
        await store.schema.check()
        yield Relay(store, routes, config=settings.relay, name=name, heartbeat=heartbeat, listeners=listeners)


def tune_gc() -> None:
    """Leave what start-up made out of every later look for circles, and look less often: it would take a fifth of the
    relay's time. For a process that is nothing but a relay: an application with a relay inside decides that for itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _trip_of(claims: Sequence[Claim], verdicts: Mapping[int, Verdict], asked: int, seconds: float) -> Trip:
    bodies = [claimed.message.body for claim in claims for claimed in claim.messages]
    published = sum(type(verdict) is Published for verdict in verdicts.values())
    return Trip(asked, len(bodies), published, sum(len(body) for body in bodies if body), seconds)


def _version() -> str:
    try:
        return version("postroom")
    except PackageNotFoundError:
        return "unknown"
