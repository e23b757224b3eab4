"""The relay: claims, carries and settles, several batches at once, until it is stopped or drained."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from postroom.clock import monotonic
from postroom.config.values import RelayConfig
from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import OPEN
from postroom.contracts.outbox import Claim, Published, Verdict
from postroom.contracts.store import Store
from postroom.errors import ConfigError, PostroomError, StoreError, StoreUnavailable
from postroom.events import BatchClaimed, LanesLost, Listeners
from postroom.handles import nearby
from postroom.relay.batch_size import BatchSize, Trip
from postroom.relay.breaker import Breakers, grace
from postroom.relay.deadlines import within
from postroom.relay.heartbeat import Heartbeat
from postroom.relay.owned_lanes import OwnedLanes
from postroom.relay.routes import Route, Routes
from postroom.relay.sender import Sender
from postroom.relay.settler import Settler
from postroom.relay.suspects import Suspects
from postroom.relay.verdict import lost_with_its_relay
from postroom.relay.wakeup import Backoff, watch
from postroom.telemetry.failpoints import reach

CLAIMS_AT_ONCE = 2
"""How many claims, of different lanes, are asked for at once while messages flow."""
QUIET_SECONDS = 1.0
"""With a route that is shut, a drain ends when nothing has moved for so long, or three of the longest looks."""
PROBE = 1
"""How many messages are claimed to ask whether the brokers are back."""


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
        self._patience = lease / 2
        self._sender = Sender(table, self._breakers, timeout, no_route_waits=self.config.no_route == "wait")
        self._settler = Settler(store, self._patience, self._listeners)
        info = RelayInfo(owner=self.owner, name=label, host=socket.gethostname(), pid=os.getpid(), version=_version())
        lost = lost_with_its_relay(table.first.retry, park=table.first.park)
        self._heartbeat = Heartbeat(heartbeat or store, info, self._owned, lease, lost, self._listeners)
        self._batch = BatchSize(
            self.config.first_batch, self.config.largest_batch, send_timeout=timeout.total_seconds()
        )
        self._idle = Backoff(first=0.002, most=self.config.poll.total_seconds())
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._trips: dict[asyncio.Task[None], Mapping[int, int]] = {}
        """What is under way, with the lanes that are reserved for it."""
        self._claiming = 0
        self._resting_until = 0.0
        self._suspects = Suspects(lost)
        self._doubtful: set[int] = set()
        """Lanes of which something was asked for, and no answer came."""
        self._broken: BaseException | None = None

    def stop(self) -> None:
        """Ask it to end: nothing more is claimed, what was sent is settled, the lanes are handed back."""
        self._stopping.set()
        self._changed.set()
        self._heartbeat.nudge()

    async def run(self) -> None:
        """Carry messages until `stop`."""
        await self._run(drain=False)

    async def drain(self) -> Drained:
        """Carry messages until nothing can move without a person; what is left then."""
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
        watching = asyncio.create_task(watch(self._store, self._woken, self._unwatched))
        try:
            with nearby.told(self._look):
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
                if self._suspects.last_try is not None:
                    if await self._try_alone(self._suspects.last_try):
                        continue
                elif await self._start_trip():
                    continue
                elif drain and not self._trips and await self._is_drained():
                    return
            await self._wait()

    def _woken(self) -> None:
        """Something was committed, or a relay came or went: look at once, from short waits on."""
        # What the store tells of need not be asked for so often.
        self._idle.most = 2 * self.config.poll.total_seconds()
        self._look()

    def _look(self) -> None:
        """Look at once, from short waits on."""
        self._idle.shorten()
        self._resting_until = 0.0
        self._changed.set()
        self._heartbeat.nudge()

    def _unwatched(self) -> None:
        self._idle.most = self.config.poll.total_seconds()

    async def _start_trip(self) -> bool:
        """Send a task to claim and carry, if there is room, a lane to claim from, and a broker that may be asked.

        After an empty look the next one is a peek: an idle relay should cost next to nothing."""
        now = monotonic()
        lanes = self._owned.rested(self._owned.idle(now, self._send_seconds), now)
        room = self.config.concurrency - len(self._trips)
        if not lanes or room < 1 or self._claiming >= self._claims_at_once:
            return False
        if now < self._resting_until or self._breakers.shut_for(now):
            return False
        if self._idle.waited and not await within(self._patience, self._store.outbox.peek(lanes)):
            self._rest()
            return False
        limit = PROBE if self._breakers.away() else self._batch.size
        suspects = self._suspects.turn(self._owned.still_mine(lanes), room)
        part = self._owned.still_mine(suspects or self._part_of(self._suspects.others(lanes), room))
        if not part:
            return False
        self._owned.reserve(part)
        self._claiming += 1
        task = asyncio.create_task(self._trip(part, -(-limit // 2) if suspects else limit, theirs=bool(suspects)))
        if suspects:
            self._suspects.trip = task
        self._trips[task] = part
        task.add_done_callback(self._done)
        return True

    def _part_of(self, lanes: dict[int, int], room: int) -> dict[int, int]:
        """Two claims never share a lane: leave some for the other trips. But where only little comes, it may be in any lane."""
        return lanes if self._idle.waited else self._owned.part_of(lanes, room)

    @property
    def _claims_at_once(self) -> int:
        """Two while messages flow, so that the database is not waited for; one to look whether there are any."""
        return 1 if self._idle.waited else CLAIMS_AT_ONCE

    async def _trip(self, part: dict[int, int], limit: int, *, theirs: bool) -> None:
        """Claim from these lanes, which are reserved for this trip, and carry what was found. *theirs*: it is the suspects'
        turn, of which one batch is under way at a time (R8)."""
        claims: Sequence[Claim] = []
        try:
            claims = await self._claim(part, limit)
        except StoreUnavailable:
            self._rest()
        finally:
            self._claiming -= 1
            self._changed.set()
        found = self._suspects.sort_out(part, claims, theirs=theirs)
        if found.back:
            await self._close(found.back, {})
        if found.clean:
            await self._carry(found.clean, None if theirs else limit)
        if found.suspects:
            await self._carry(found.suspects)

    async def _claim(self, part: dict[int, int], limit: int, *, alone: bool = False) -> Sequence[Claim]:
        begin = monotonic()
        claims: Sequence[Claim] = []
        try:
            # R22: what is doubtful is looked into behind the lock of the lane, which is reserved for this claim.
            doubtful = self._doubtful & part.keys()
            asked = self._store.outbox.claim(self.owner, part, limit=limit, doubtful=doubtful, alone=alone)
            claims = await within(self._patience, asked)
            self._doubtful -= doubtful
        except StoreUnavailable:
            self._doubtful |= part.keys()
            raise
        finally:
            self._owned.claimed(part, claims, limit, begin, monotonic())
        if not claims:
            # While others are full only these lanes rest, not the relay.
            if not self._owned.is_full:
                self._rest()
            return []
        self._idle.reset()
        reach("after-claim")
        count = sum(len(claim.messages) for claim in claims)
        self._listeners(BatchClaimed(count=count, lanes=len(claims), seconds=monotonic() - begin))
        return claims

    def _done(self, task: asyncio.Task[None]) -> None:
        part = self._trips.pop(task)
        if task is self._suspects.trip:
            self._suspects.trip = None
        if task.cancelled():
            # R26: by whose code, and where it stood, nobody knows. Its lanes are looked into, and go on.
            self._doubtful |= part.keys()
            self._owned.settled(part)
        self._changed.set()
        self._end_if_broken(task)

    def _heart_stopped(self, task: asyncio.Task[None]) -> None:
        """R26: without a heartbeat no lane is kept, and none is given up."""
        if task.cancelled() and not self._stopping.is_set():
            self._broken = self._broken or PostroomError(
                "The relay's heartbeat was cancelled, by nobody who stopped the relay: start it again, and look for code that "
                "cancels tasks which are not its own."
            )
            self.stop()
        self._end_if_broken(task)

    def _end_if_broken(self, task: asyncio.Task[None]) -> None:
        """Neither a broker that is away nor a database: end loudly, rather than go on without a heartbeat or a batch."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self.stop()

    async def _try_alone(self, lane: int) -> bool:
        """The try whose loss would bury a message: nothing else is in flight in this process meanwhile, from its claim to its
        settle, so that nobody else can be to blame (R8). Whether it was tried."""
        if self._trips:
            await asyncio.wait(self._trips)
        now = monotonic()
        if now < self._resting_until or self._breakers.shut_for(now) or self._stopping.is_set():
            return False
        self._suspects.last_try = None
        part = {each: epoch for each, epoch in self._owned.idle(now, self._send_seconds).items() if each == lane}
        if not part:
            return False
        self._owned.reserve(part)
        claims = await self._claim(part, 1, alone=True)
        self._suspects.sort_out(part, claims, theirs=False)
        if claims:
            await self._carry(claims)
        return True

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
        lost = await self._settler.settle(claims, verdicts, self._is_mine)
        if lost is None:
            # R10: it may have been carried out, or not, or be on its way.
            self._doubtful |= {claim.lane for claim in claims}
        if lost:
            self._owned.drop(lost)
            self._listeners(LanesLost(owner=self.owner, lanes=tuple(lost)))
        self._owned.settled({claim.lane: claim.epoch for claim in claims})
        if self._owned.is_leaving:
            self._heartbeat.nudge()

    def _may_send(self, claim: Claim) -> bool:
        return self._owned.may_send(claim.lane, claim.epoch, monotonic(), self._send_seconds)

    def _is_mine(self, claim: Claim) -> bool:
        return self._owned.may_send(claim.lane, claim.epoch, monotonic(), 0)

    async def _is_drained(self) -> bool:
        """Can nothing move without a person? What is left is parked, or waits for a route that is shut."""
        if self._sender.is_stuck(monotonic(), max(QUIET_SECONDS, 3 * self._idle.most)):
            return True
        counts = await self._store.ops.counts()
        waiting = sum(counts.by_status.get(status, 0) for status in OPEN)
        return waiting == counts.parked

    def _rest(self) -> None:
        """There was nothing, or nobody answered: look again after a while, a longer one each time."""
        self._resting_until = monotonic() + self._idle.next()

    async def _wait(self) -> None:
        """Until something changes; or until it is time to look again."""
        now = monotonic()
        rest = max(self._resting_until - now, self._breakers.shut_for(now), 0)
        rest = rest or self._owned.next_look(now) or self.config.poll.total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await self._changed.wait()


def _trip_of(claims: Sequence[Claim], verdicts: Mapping[int, Verdict], asked: int, seconds: float) -> Trip:
    bodies = [claimed.message.body for claim in claims for claimed in claim.messages]
    published = sum(type(verdict) is Published for verdict in verdicts.values())
    return Trip(asked, len(bodies), published, sum(len(body) for body in bodies if body), seconds)


def _version() -> str:
    try:
        return version("postroom")
    except PackageNotFoundError:
        return "unknown"
