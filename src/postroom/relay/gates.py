"""A gate before each broker: open, shut for a while when the broker is away, then ajar for one probe.

A broker that is away says nothing about the messages, so none of them pays an attempt for it; and asking it for every
batch would cost the other routes their time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from postroom.clock import monotonic
from postroom.errors import PostroomError, TransportUnavailable
from postroom.events import Listeners, Published, RoutePaused, RouteResumed
from postroom.relay.routes import Route, Routes
from postroom.relay.wakeup import Backoff
from postroom.tracing import Failing, sending
from postroom.transport import KEY_STOPPED, NOT_STARTED, Envelope, Failed, Outcome, Sent, Unavailable

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
NOT_TRIED = frozenset({KEY_STOPPED.code, NOT_STARTED.code})
"""Codes that say nothing of the broker."""


def grace(timeout: timedelta) -> timedelta:
    """A transport answers within its time-out; one that does not is cut off after this much more."""
    return min(timeout / 5, timedelta(seconds=1))


class Gate:
    """One publisher, and whether it may be asked now."""

    def __init__(self, route: Route, listeners: Listeners) -> None:
        self._publisher, self._name, self._listeners = route.to, route.name, listeners
        self._declared = route.to.capabilities
        self._backoff = Backoff(first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS)
        self._shut_at = self._shut_until = 0.0
        self._probing = self._opened = False

    @property
    def is_away(self) -> bool:
        """Was the broker away when it was last asked?"""
        return self._backoff.waited

    def shut_for(self, now: float) -> float:
        """How many seconds nothing may pass; 0: something may. With a probe on its way, a moment."""
        if self._probing:
            return FIRST_PAUSE_SECONDS
        return max(self._shut_until - now, 0.0)

    async def open(self, timeout: timedelta) -> None:
        """Connect. One that is away now is like one that goes away later; what is set wrong is told (ConfigError)."""
        with suppress(TransportUnavailable, TimeoutError):
            async with asyncio.timeout(timeout.total_seconds()):
                await self._publisher.open()
                self._opened = True

    async def close(self) -> None:
        await self._publisher.close()

    async def publish(self, envelopes: Sequence[Envelope], timeout: timedelta) -> Sequence[Outcome]:
        """Ask the broker, and remember whether it was there. Never raises."""
        self._probing = self.is_away
        begin = monotonic()
        try:
            with sending(self._declared.name, envelopes, topic=self._declared.topic) as failed:
                outcomes = await self._ask(envelopes, timeout)
                if failed is not None:
                    _tell(failed, outcomes)
        finally:
            self._probing = False
        self._remember(outcomes, begin)
        return outcomes

    async def _ask(self, envelopes: Sequence[Envelope], timeout: timedelta) -> Sequence[Outcome]:
        if not self._opened and (refusal := await self._open_late(timeout)) is not None:
            return [refusal] * len(envelopes)
        try:
            async with asyncio.timeout((timeout + grace(timeout)).total_seconds()):
                return await self._publisher.publish(envelopes, timeout=timeout)
        except TimeoutError:
            return [Failed("TIMEOUT", "the transport did not answer in time", unknown=True)] * len(envelopes)
        except Exception as exc:  # noqa: BLE001 - a transport must not raise; if it does, its effect is unknown
            broken = Failed("TRANSPORT_ERROR", f"{type(exc).__name__}: {exc}", unknown=True)
            return [broken] * len(envelopes)

    async def _open_late(self, timeout: timedelta) -> Outcome | None:
        """Connect now; why nothing can be sent, if so. Connecting may take the time that the lease has for sending: then
        the messages are not tried now, rather than cut off in the middle."""
        begin = monotonic()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._publisher.open()
        except TimeoutError:
            return Unavailable("CONNECT_TIMEOUT", "no connection in time")
        except PostroomError as exc:
            return Unavailable("CONNECT_FAILED", str(exc))
        except Exception as exc:  # noqa: BLE001 - a transport must not raise; nothing was sent yet
            return Unavailable("CONNECT_FAILED", f"{type(exc).__name__}: {exc}")
        self._opened = True
        return NOT_STARTED if monotonic() - begin > grace(timeout).total_seconds() / 2 else None

    def _remember(self, outcomes: Sequence[Outcome], begin: float) -> None:
        """Shut after an answer that the broker is away, longer each time; open again after any other word of it."""
        kinds = {type(outcome) for outcome in outcomes}
        away = _away(outcomes) if Unavailable in kinds else None
        if away is not None:
            # Several batches that were on their way together have met the same outage once.
            if begin >= self._shut_at:
                self._shut(away)
        elif kinds - {Unavailable} and self.is_away:
            self._listeners(RouteResumed(route=self._name, seconds=self._backoff.total))
            self._backoff.reset()
            self._shut_until = 0.0
        if self._listeners and Sent in kinds:
            all_sent = len(kinds) == 1
            count = len(outcomes) if all_sent else sum(type(outcome) is Sent for outcome in outcomes)
            self._listeners(Published(route=self._name, count=count, seconds=monotonic() - begin))

    def _shut(self, away: Unavailable) -> None:
        asked = away.retry_after.total_seconds() if away.retry_after else 0.0
        delay = max(self._backoff.next(), min(asked, LONGEST_PAUSE_SECONDS))
        self._shut_at = monotonic()
        self._shut_until = self._shut_at + delay
        pause = timedelta(seconds=delay)
        self._listeners(RoutePaused(route=self._name, code=away.code, error=away.error, delay=pause))


def _tell(failed: Failing, outcomes: Sequence[Outcome]) -> None:
    """Tell the span of the first that was not sent."""
    for outcome in outcomes:
        if not isinstance(outcome, Sent):
            failed(outcome.code, outcome.error)
            return


def _away(outcomes: Sequence[Outcome]) -> Unavailable | None:
    tried = (each for each in outcomes if isinstance(each, Unavailable) and each.code not in NOT_TRIED)
    return next(tried, None)


class Gates:
    """The gates of a relay: one for each broker, whichever routes lead to it."""

    def __init__(self, routes: Routes, listeners: Listeners) -> None:
        by_publisher: dict[int, Gate] = {}
        self._by_route: dict[int, Gate] = {}
        for route in routes:
            gate = by_publisher.setdefault(id(route.to), Gate(route, listeners))
            self._by_route[id(route)] = gate
        self._gates = tuple(by_publisher.values())

    def __len__(self) -> int:
        return len(self._gates)

    def of(self, route: Route) -> Gate:
        return self._by_route[id(route)]

    def shut_for(self, now: float) -> float:
        """How many seconds nothing may pass at all, so that there is no use in claiming; 0: something may."""
        return min(gate.shut_for(now) for gate in self._gates)

    def away(self) -> bool:
        """Was every broker away when it was last asked? Then a single message is enough to ask again."""
        return all(gate.is_away for gate in self._gates)

    async def open(self, timeout: timedelta) -> None:
        for gate in self._gates:
            await gate.open(timeout)

    async def close(self) -> None:
        for gate in self._gates:
            await gate.close()
