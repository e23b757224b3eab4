"""Carrying claimed messages to their brokers: what is sent, in which order, and what came of it. No database here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from postroom.clock import monotonic
from postroom.codec import JSON
from postroom.contracts.outbox import Buried, Claim, Claimed, Expired, Published, Retry, Unsent, Verdict
from postroom.contracts.transport import Envelope, Outcome, Sent, Unavailable
from postroom.relay.breaker import NOT_TRIED, Breakers
from postroom.relay.routes import Route, Routes
from postroom.relay.verdict import judge, unrouted
from postroom.telemetry.failpoints import reach

PUBLISHED, EXPIRED, UNSENT = Published(), Expired(), Unsent()

_new = tuple.__new__
"""Makes a named tuple without its own __new__, which is Python and takes three times as long."""
_scan: Callable[[str, int], tuple[object, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined] # not in typeshed


class Parcel(NamedTuple):
    """A message with its claim and its route."""

    claim: Claim
    claimed: Claimed
    route: Route


class Sender:
    """Sends what may be sent, and judges what came of it."""

    def __init__(self, routes: Routes, breakers: Breakers, timeout: timedelta, *, no_route_waits: bool = False) -> None:
        self._routes, self._breakers, self._timeout = routes, breakers, timeout
        self._no_route_waits = no_route_waits
        self._quiet_since = 0.0
        """When a broker last answered for a message, or will be asked for one that waits for its retry."""

    def is_stuck(self, now: float, patience: float) -> bool:
        """Does what is left wait for a person: a route is shut, and no other had anything to do for *patience* seconds?"""
        if not self._breakers.waits_for_a_person:
            return False
        return len(self._breakers.shut) == len(self._breakers) or now >= self._quiet_since + patience

    async def carry(self, claims: Sequence[Claim], may_send: Callable[[Claim], bool]) -> dict[int, Verdict]:
        """The verdicts by seq; what has none was not sent. *may_send* is asked before each round (R16)."""
        verdicts: dict[int, Verdict] = {}
        stopped: set[str] = set()
        for parcels in self._in_rounds(self._sorted_out(claims, verdicts)):
            now = _still_allowed(parcels, claims, may_send, stopped)
            if not now:
                continue
            reach("before-publish")
            outcomes = await self._publish(now)
            reach("after-publish")
            stopped |= self._judge(now, outcomes, verdicts)
        return verdicts

    def _sorted_out(self, claims: Iterable[Claim], verdicts: dict[int, Verdict]) -> list[Parcel]:
        """What is to be sent; what need not be has its verdict at once."""
        parcels: list[Parcel] = []
        stopped: set[str | None] = set()
        route_of = self._routes.route
        for claim in claims:
            for claimed in claim.messages:
                message = claimed.message
                key = message.key
                if key in stopped:
                    continue
                route = route_of(message.type)
                if route is not None and not claimed.expired and _is_whole(message.body, message.content_type):
                    parcels.append(_new(Parcel, (claim, claimed, route)))
                    continue
                verdict = self._without_sending(claimed, route)
                if key is not None and not isinstance(verdict, Expired):
                    stopped.add(key)
                    # Earlier ones of the key go out first; this one is judged when it is the head.
                    if any(parcel.claimed.message.key == key for parcel in parcels):
                        verdict = UNSENT
                verdicts[claimed.seq] = verdict
        return parcels

    def _without_sending(self, claimed: Claimed, route: Route | None) -> Verdict:
        if claimed.expired:
            return EXPIRED
        if route is None:
            return unrouted(claimed.message.type, waits=self._no_route_waits, park=self._routes.first.park)
        return Buried("CORRUPT_PAYLOAD", "the body is not JSON", park=route.park)

    def _in_rounds(self, parcels: Sequence[Parcel]) -> Sequence[Sequence[Parcel]]:
        """What can go together: of each key, all up to where its route changes. A key is one line, whatever its routes."""
        if len(self._routes) == 1:
            return [parcels]
        rounds: list[list[Parcel]] = [[]]
        turns: dict[str, tuple[Route, int]] = {}
        for parcel in parcels:
            key = parcel.claimed.message.key
            turn = 0
            if key is not None:
                route, turn = turns.get(key, (parcel.route, 0))
                turn += route is not parcel.route
                turns[key] = parcel.route, turn
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(parcel)
        return rounds

    async def _publish(self, parcels: Sequence[Parcel]) -> Sequence[Outcome]:
        """Publish each route's batch, side by side; the outcomes in the order of the parcels."""
        if len(self._routes) == 1:
            return await self._publish_to(self._routes.first, parcels)
        places: dict[int, list[int]] = {}
        for place, parcel in enumerate(parcels):
            places.setdefault(id(parcel.route), []).append(place)
        batches = [[parcels[place] for place in each] for each in places.values()]
        answers = await asyncio.gather(*(self._publish_to(batch[0].route, batch) for batch in batches))
        told = {place: out for each, answer in zip(places.values(), answers, strict=True)
                for place, out in zip(each, answer, strict=True)}  # fmt: skip
        return [told[place] for place in range(len(parcels))]

    async def _publish_to(self, route: Route, parcels: Sequence[Parcel]) -> Sequence[Outcome]:
        gate, topic = self._breakers.of(route), route.topic
        if gate.is_shut:
            shut = Unavailable("ROUTE_SHUT", f"route {route.name} is shut until it is fixed and the relay is restarted")
            return [shut] * len(parcels)
        if len(self._breakers) > 1 and gate.shut_for(monotonic()):
            away = Unavailable("ROUTE_PAUSED", f"the broker of route {route.name} is away")
            return [away] * len(parcels)
        outcomes = await gate.publish(
            [_new(Envelope, (claimed.message, topic)) for _, claimed, _ in parcels], self._timeout
        )
        self._quiet_since = max(self._quiet_since, monotonic())
        return outcomes

    def _judge(self, parcels: Sequence[Parcel], outcomes: Sequence[Outcome], verdicts: dict[int, Verdict]) -> set[str]:
        """Note the verdicts; which keys stop here (R17: the next of a key only after the one before was sent)."""
        stopped: set[str] = set()
        for (_, claimed, route), outcome in zip(parcels, outcomes, strict=True):
            if type(outcome) is Sent:
                verdicts[claimed.seq] = PUBLISHED
                continue
            verdicts[claimed.seq] = self._verdict(claimed, route, outcome)
            if claimed.message.key is not None:
                stopped.add(claimed.message.key)
        return stopped

    def _verdict(self, claimed: Claimed, route: Route, outcome: Outcome) -> Verdict:
        if isinstance(outcome, Unavailable):
            # With one broker the relay itself pauses: there is nothing to write into messages that nobody sent.
            if outcome.code in NOT_TRIED or (len(self._breakers) == 1 and not outcome.until_told):
                return UNSENT
            # But of a route that is shut somebody should read why, in the messages that found it so.
            shut = self._breakers.of(route).shut_for(monotonic()) if len(self._breakers) > 1 else 0.0
            return judge(outcome, claimed.attempts, route.retry, park=route.park, pause=timedelta(seconds=shut))
        verdict = judge(outcome, claimed.attempts, route.retry, park=route.park)
        if isinstance(verdict, Retry):
            self._quiet_since = max(self._quiet_since, monotonic() + verdict.after.total_seconds())
        return verdict


def _still_allowed(
    parcels: Sequence[Parcel], claims: Sequence[Claim], may_send: Callable[[Claim], bool], stopped: set[str]
) -> Sequence[Parcel]:
    allowed = {claim.id for claim in claims if may_send(claim)}
    if len(allowed) == len(claims) and not stopped:
        return parcels
    return [each for each in parcels if each.claim.id in allowed and each.claimed.message.key not in stopped]


def _is_whole(body: bytes | None, content_type: str) -> bool:
    if body is None or content_type != JSON:
        return True
    try:
        text = body.decode()
        # Quick, for what our own `put` writes: no space around it.
        return _scan(text, 0)[1] == len(text) or _can_be_read(body)
    except (StopIteration, ValueError, RecursionError):
        return _can_be_read(body)


def _can_be_read(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
