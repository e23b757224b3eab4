"""A gate before each broker: open, shut for a while when the broker is away, then ajar for one probe.

A broker that is away says nothing about the messages, so none of them spends an attempt for it; and asking it for every
batch would cost the other routes their time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from postroom.clock import monotonic
from postroom.containment import Escaped, contained
from postroom.contracts.outbox import ERROR_MAX
from postroom.contracts.transport import (
    KEY_STOPPED,
    NOT_STARTED,
    Envelope,
    Failed,
    Outcome,
    Rejected,
    Sent,
    Unavailable,
)
from postroom.errors import PostroomError, TransportUnavailable
from postroom.events import BatchPublished, Listeners, RoutePaused, RouteResumed
from postroom.relay.routes import Route, Routes
from postroom.relay.wakeup import Backoff
from postroom.telemetry.tracing import Failing, sending
from postroom.text import describe, one_line, storable

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
OPENING = timedelta(seconds=10)
"""So long at least a transport has to connect at the start, whatever a send may take: a broker that does not want us may take
seconds to say so, and then the start must end."""
CODE_MAX = 255
"""How many characters of a code are kept."""
NOT_TRIED = frozenset({KEY_STOPPED.code, NOT_STARTED.code})
"""Codes that say nothing of the broker."""


def grace(timeout: timedelta) -> timedelta:
    """A transport answers within its time-out; one that does not is cut off after this much more."""
    return min(timeout / 5, timedelta(seconds=1))


class Breaker:
    """One publisher, and whether it may be asked now."""

    def __init__(self, route: Route, listeners: Listeners) -> None:
        self._publisher, self._name, self._listeners = route.to, route.name, listeners
        self._declared = route.to.capabilities
        self._backoff = Backoff(first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS)
        self._shut_at = self._shut_until = 0.0
        self._probing = self._opened = False
        self.is_shut = False
        """Did the broker say that only a person can open the way again? Then it is not asked any more."""

    @property
    def name(self) -> str:
        """The route's, or the first one's of several that lead here."""
        return self._name

    @property
    def is_away(self) -> bool:
        """Was the broker away when it was last asked?"""
        return self._backoff.waited

    def shut_for(self, now: float) -> float:
        """How many seconds nothing may pass; 0: something may. With a probe on its way, a moment."""
        if self.is_shut:
            return LONGEST_PAUSE_SECONDS
        if self._probing:
            return FIRST_PAUSE_SECONDS
        return max(self._shut_until - now, 0.0)

    async def open(self, timeout: timedelta) -> None:
        """Connect. One that is away now is like one that goes away later; what is set wrong is told (ConfigError).

        A start is a person's word: a way that was shut is tried again, with one message."""
        self.is_shut, self._shut_until = False, 0.0
        try:
            async with asyncio.timeout(max(timeout, OPENING).total_seconds()):
                await self._publisher.open()
                self._opened = True
        except TimeoutError:
            self._shut(Unavailable("CONNECT_TIMEOUT", "no connection in time"))
        except TransportUnavailable as exc:
            # Told now: with nothing to send, nobody would hear of it for days.
            self._shut(Unavailable("CONNECT_FAILED", str(exc)))

    async def close(self) -> None:
        await self._publisher.close()

    async def publish(self, envelopes: Sequence[Envelope], timeout: timedelta) -> Sequence[Outcome]:
        """Ask the broker, and remember whether it was there. Never raises."""
        self._probing = self.is_away
        begin = monotonic()
        try:
            with sending(self._declared.name, envelopes, topic=self._declared.topic) as failed:
                outcomes = cleaned(await self._ask(envelopes, timeout))
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
                # R26: a cancellation of its own would end the trip, which holds lanes.
                with contained():
                    return await self._publisher.publish(envelopes, timeout=timeout)
        except TimeoutError:
            return [Failed("TIMEOUT", "the transport did not answer in time", unknown=True)] * len(envelopes)
        except Exception as exc:  # noqa: BLE001 - a transport must not raise; if it does, its effect is unknown
            said = str(exc) if isinstance(exc, Escaped) else describe(exc)
            broken = Failed("TRANSPORT_ERROR", said, unknown=True)
            return [broken] * len(envelopes)

    async def _open_late(self, timeout: timedelta) -> Outcome | None:
        """Connect now; why nothing can be sent, if so. Connecting may take the time that the lease has for sending: then
        the messages are not tried now, rather than cut off in the middle."""
        begin = monotonic()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                with contained():
                    await self._publisher.open()
        except TimeoutError:
            return Unavailable("CONNECT_TIMEOUT", "no connection in time")
        except PostroomError as exc:
            return Unavailable("CONNECT_FAILED", str(exc))
        except Exception as exc:  # noqa: BLE001 - a transport must not raise; nothing was sent yet
            return Unavailable("CONNECT_FAILED", describe(exc))
        self._opened = True
        return NOT_STARTED if monotonic() - begin > grace(timeout).total_seconds() / 2 else None

    def _remember(self, outcomes: Sequence[Outcome], begin: float) -> None:
        """Shut after an answer that the broker is away, longer each time; open again after any other word of it."""
        kinds = {type(outcome) for outcome in outcomes}
        away = _away(outcomes) if Unavailable in kinds else None
        if self.is_shut:
            pass  # what was under way when it was shut changes nothing: a person must say so
        elif away is not None and away.until_told:
            self._shut_until_told(away)
        elif away is not None:
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
            self._listeners(BatchPublished(route=self._name, count=count, seconds=monotonic() - begin))

    def _shut(self, away: Unavailable) -> None:
        asked = away.retry_after.total_seconds() if away.retry_after else 0.0
        delay = max(self._backoff.next(), min(asked, LONGEST_PAUSE_SECONDS))
        self._shut_at = monotonic()
        self._shut_until = self._shut_at + delay
        pause = timedelta(seconds=delay)
        self._listeners(RoutePaused(route=self._name, code=away.code, error=one_line(away.error), delay=pause))

    def _shut_until_told(self, away: Unavailable) -> None:
        self._backoff.next()
        self.is_shut = True
        logger.error(
            "Route %s is shut: %s: %s. Nothing goes this way until a person fixes or removes the route and "
            "restarts the relay; its messages wait, and no message spends an attempt.",
            self._name,
            away.code,
            one_line(away.error),
        )
        self._listeners(RoutePaused(route=self._name, code=away.code, error=one_line(away.error), delay=None))


def cleaned(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """The outcomes with texts that can be stored and shown, and not long: a broker, or a stranger's function, wrote them.

    From here on nobody need ask again, but for lines: whoever writes to a log makes one of them."""
    if set(map(type, outcomes)) == {Sent}:
        return outcomes
    return [each if isinstance(each, Sent) else _clean(each) for each in outcomes]


def _clean(outcome: Failed | Rejected | Unavailable) -> Failed | Rejected | Unavailable:
    code, error = one_line(outcome.code, CODE_MAX), storable(outcome.error, ERROR_MAX)
    is_clean = code == outcome.code and error == outcome.error
    return outcome if is_clean else replace(outcome, code=code, error=error)


def _tell(failed: Failing, outcomes: Sequence[Outcome]) -> None:
    """Tell the span of the first that was not sent."""
    for outcome in outcomes:
        if not isinstance(outcome, Sent):
            failed(outcome.code, outcome.error)
            return


def _away(outcomes: Sequence[Outcome]) -> Unavailable | None:
    """Why the broker could not be asked; the answer that shuts the way for good before any other."""
    tried = [each for each in outcomes if isinstance(each, Unavailable) and each.code not in NOT_TRIED]
    return max(tried, key=lambda each: each.until_told, default=None)


class Breakers:
    """The breakers of a relay: one for each broker, whichever routes lead to it."""

    def __init__(self, routes: Routes, listeners: Listeners) -> None:
        by_publisher: dict[int, Breaker] = {}
        self._by_route: dict[int, Breaker] = {}
        for route in routes:
            gate = by_publisher.setdefault(id(route.to), Breaker(route, listeners))
            self._by_route[id(route)] = gate
        self._breakers = tuple(by_publisher.values())

    def __len__(self) -> int:
        return len(self._breakers)

    def of(self, route: Route) -> Breaker:
        return self._by_route[id(route)]

    def shut_for(self, now: float) -> float:
        """How many seconds nothing may pass at all, so that there is no use in claiming; 0: something may."""
        return min(gate.shut_for(now) for gate in self._breakers)

    def away(self) -> bool:
        """Was every broker away when it was last asked? Then a single message is enough to ask again."""
        return all(gate.is_away for gate in self._breakers)

    @property
    def shut(self) -> tuple[str, ...]:
        """The names of the routes that are shut until a person acts."""
        return tuple(gate.name for gate in self._breakers if gate.is_shut)

    @property
    def waits_for_a_person(self) -> bool:
        """Is a way shut, and none merely paused, so that waiting alone opens none?"""
        away = [gate for gate in self._breakers if gate.is_away]
        return bool(away) and all(gate.is_shut for gate in away)

    async def open(self, timeout: timedelta) -> None:
        """Connect to all of them at once. Raises what the first of those says that a person must fix (ConfigError). Whatever
        it raises, also when it is cancelled, none of them is left open."""
        try:
            opened = await asyncio.gather(*(gate.open(timeout) for gate in self._breakers), return_exceptions=True)
            for error in (each for each in opened if each is not None):
                raise error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for gate in self._breakers:
            await gate.close()
