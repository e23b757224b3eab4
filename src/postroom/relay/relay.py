"""The relay: claims, carries and settles, several batches at once, until it is stopped or drained."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version

from postroom.clock import monotonic
from postroom.config import RelayConfig
from postroom.errors import StoreError, StoreUnavailable, TransportUnavailable
from postroom.events import Claimed, LanesLost, Listeners, RoutePaused, RouteResumed, Settled
from postroom.failpoints import reach
from postroom.relay.carrier import carry
from postroom.relay.heartbeat import Heartbeat
from postroom.relay.holdings import Holdings
from postroom.relay.routes import Route, Routes
from postroom.relay.verdict import lost_with_its_relay
from postroom.relay.wakeup import Backoff
from postroom.store import Buried, Claim, Expired, Published, RelayInfo, Retry, Settlement, Store, Verdict

SETTLE_PAUSE_SECONDS = 0.2
"""Between two tries to settle while the database is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What is left when nothing can move without a person."""

    dead: int
    parked: int


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
        self._routes = Routes(routes)
        self._listeners = listeners or Listeners()
        self._holdings = Holdings()
        info = RelayInfo(owner=self.owner, name=label, host=socket.gethostname(), pid=os.getpid(), version=_version())
        first = self._routes.first
        lost = lost_with_its_relay(first.retry, park=first.park)
        self._heartbeat = Heartbeat(heartbeat or store, info, self._holdings, self.config.lease, lost, self._listeners)
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._carrying: set[asyncio.Task[None]] = set()
        self._holding_ids: set[int] = set()
        self._last_used: dict[int, int] = {}
        self._turns = 0
        self._broken: BaseException | None = None
        self._paused_until = 0.0
        self._pause = Backoff(first=0.5, most=30.0)

    def stop(self) -> None:
        """Ask it to end: nothing more is claimed, what was sent is settled, the lanes are handed back."""
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Carry messages until `stop`."""
        await self._run(drain=False)

    async def drain(self) -> Drained:
        """Carry messages until nothing can move without a person; what is left then."""
        await self._run(drain=True)
        counts = await self._store.counts()
        return Drained(dead=counts.by_status.get("dead", 0), parked=counts.parked)

    async def _run(self, *, drain: bool) -> None:
        for publisher in self._routes.publishers:
            # A broker that is away now is like one that goes away later: paused, probed, and no attempt spent.
            with suppress(TransportUnavailable):
                await publisher.open()
        beating = asyncio.create_task(self._heartbeat.run(self._stopping, self._changed.set))
        beating.add_done_callback(self._end_if_broken)
        try:
            await self._pump(drain=drain)
        finally:
            self.stop()
            await asyncio.gather(*self._carrying, beating, return_exceptions=True)
            with suppress(StoreError):
                await self._heartbeat.leave()
            for publisher in self._routes.publishers:
                await publisher.close()
        if self._broken is not None:
            raise self._broken

    async def _pump(self, *, drain: bool) -> None:
        """Claim as long as there is something and room for it; else wait for whatever changes that."""
        idle = Backoff(first=0.002, most=self.config.poll.total_seconds())
        while not self._stopping.is_set():
            self._changed.clear()
            with suppress(StoreUnavailable):
                if await self._claim_some(looking=idle.waited):
                    idle.reset()
                    continue
                if drain and not self._carrying and await self._is_drained():
                    return
            await self._wait(idle.next())

    async def _claim_some(self, *, looking: bool) -> bool:
        """One claim, if there is room and a lane to claim from; whether anything came.

        After an empty look the next one is a peek: an idle relay should cost next to nothing."""
        lanes = self._holdings.idle(monotonic(), self.config.send_timeout.total_seconds())
        if not lanes or len(self._carrying) >= self.config.concurrency or monotonic() < self._paused_until:
            return False
        if looking and not await self._store.peek(lanes):
            return False
        begin = monotonic()
        claims = await self._store.claim(self.owner, self._part_of(lanes), limit=self.config.batch)
        if not claims:
            return await self._reconcile(lanes)
        reach("after-claim")
        count = sum(len(claim.messages) for claim in claims)
        self._listeners(Claimed(count=count, lanes=len(claims), seconds=monotonic() - begin))
        self._holdings.mark({claim.lane: claim.epoch for claim in claims}, busy=True)
        self._holding_ids.update(claim.id for claim in claims)
        together = [claim for claim in claims if not claim.solo]
        if together:
            self._spawn(together)
        for alone in (claim for claim in claims if claim.solo):
            await self._carry_alone(alone)
        return True

    def _part_of(self, lanes: dict[int, int]) -> dict[int, int]:
        """As many of the idle lanes as leave some for the other batches: two claims never share a lane."""
        room = self.config.concurrency - len(self._carrying)
        some = -(-len(lanes) // room) if len(lanes) > room else len(lanes)
        # Least recently used first: `mark` and `add` keep no order, so rotate by what was claimed before.
        turn = sorted(lanes, key=lambda lane: self._last_used.get(lane, 0))[:some]
        self._turns += 1
        self._last_used.update(dict.fromkeys(turn, self._turns))
        return {lane: lanes[lane] for lane in turn}

    async def _reconcile(self, lanes: dict[int, int]) -> bool:
        """Drop claims of mine whose answer never reached me (R22): nobody would settle them."""
        return await self._store.reconcile(self.owner, lanes, held=self._holding_ids) > 0

    def _spawn(self, claims: Sequence[Claim]) -> None:
        task = asyncio.create_task(self._carry(claims))
        self._carrying.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._carrying.discard(task)
        self._changed.set()
        self._end_if_broken(task)

    def _end_if_broken(self, task: asyncio.Task[None]) -> None:
        """Neither a broker that is away nor a database: end loudly, rather than go on without a heartbeat or a batch."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self.stop()

    async def _carry_alone(self, claim: Claim) -> None:
        """Nothing else is in flight in this process meanwhile: this message may be what kills it (R8)."""
        await asyncio.gather(*self._carrying)
        await self._carry([claim])

    async def _carry(self, claims: Sequence[Claim]) -> None:
        """Send and settle one batch. No transaction is open while anything is sent."""
        carried = await carry(claims, self._routes, self.config.send_timeout, self._may_send)
        self._notice(carried.away is not None, carried.verdicts)
        # R19: the batch is closed; from here on only the settle is repeated.
        await self._settle([Settlement(claim, carried.verdicts) for claim in claims])
        self._holding_ids.difference_update(claim.id for claim in claims)
        self._holdings.mark({claim.lane: claim.epoch for claim in claims}, busy=False)

    async def _settle(self, settlements: Sequence[Settlement]) -> None:
        begin = monotonic()
        while any(self._is_mine(settlement.claim) for settlement in settlements):
            try:
                answers = await self._store.settle(settlements)
            except StoreUnavailable:
                await asyncio.sleep(SETTLE_PAUSE_SECONDS)
                continue
            reach("after-settle")
            lost = [settlement.claim.lane for settlement in settlements if answers[settlement.claim.id] == "lost"]
            if lost:
                self._holdings.drop(lost)
                self._listeners(LanesLost(owner=self.owner, lanes=tuple(lost)))
            self._tell_settled(settlements[0].verdicts, monotonic() - begin)
            return

    def _may_send(self, claim: Claim) -> bool:
        needed = self.config.send_timeout.total_seconds()
        return self._holdings.may_send(claim.lane, claim.epoch, monotonic(), needed)

    def _is_mine(self, claim: Claim) -> bool:
        return self._holdings.may_send(claim.lane, claim.epoch, monotonic(), 0)

    def _tell_settled(self, verdicts: Mapping[int, Verdict], seconds: float) -> None:
        """Every claim of a batch has the verdicts of the whole batch: they are counted once."""
        if not self._listeners:
            return

        def number(*kinds: type[Verdict]) -> int:
            return sum(isinstance(verdict, kinds) for verdict in verdicts.values())

        self._listeners(
            Settled(
                published=number(Published),
                failed=number(Retry),
                dead=number(Buried),
                expired=number(Expired),
                seconds=seconds,
            )
        )

    def _notice(self, away: bool, verdicts: dict[int, Verdict]) -> None:
        """Pause claiming while the only broker is away, longer each time; a message that got through ends it."""
        if away and len(self._routes) == 1:
            delay = self._pause.next()
            self._paused_until = monotonic() + delay
            self._listeners(
                RoutePaused(route=self._routes.first.name, code="UNAVAILABLE", delay=timedelta(seconds=delay))
            )
        elif self._pause.waited and any(isinstance(verdict, Published) for verdict in verdicts.values()):
            self._listeners(RouteResumed(route=self._routes.first.name, seconds=self._pause.total))
            self._pause.reset()

    async def _is_drained(self) -> bool:
        counts = await self._store.counts()
        waiting = sum(counts.by_status.get(status, 0) for status in ("pending", "sending", "failed"))
        return waiting == counts.parked

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


def _version() -> str:
    try:
        return version("postroom")
    except PackageNotFoundError:
        return "unknown"
