"""Carrying claimed messages to their brokers: what is sent, in which order, and what came of it. No database here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from postroom.codec import JSON
from postroom.failpoints import reach
from postroom.relay.routes import Route, Routes
from postroom.relay.verdict import judge
from postroom.store import Buried, Claim, Claimed, Expired, Published, Unsent, Verdict
from postroom.transport import KEY_STOPPED, NOT_STARTED, Envelope, Failed, Outcome, Unavailable

NOT_TRIED = frozenset({KEY_STOPPED.code, NOT_STARTED.code})
GRACE = timedelta(seconds=1)
"""A transport answers within its time-out; one that does not is cut off after this much more."""


class Parcel(NamedTuple):
    """A message with its claim and its route."""

    claim: Claim
    claimed: Claimed
    route: Route


@dataclass(slots=True)
class Carried:
    """What came of a batch."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """By seq. What is missing was not sent."""
    away: Unavailable | None = None
    """The last answer of a broker that was away."""


async def carry(
    claims: Iterable[Claim], routes: Routes, timeout: timedelta, may_send: Callable[[Claim], bool]
) -> Carried:
    """Send what may be sent, and judge what came of it. *may_send* is asked before each round (R16)."""
    carried = Carried()
    verdicts = carried.verdicts
    waiting = _sorted_out(claims, routes, verdicts)
    while waiting := [parcel for parcel in waiting if may_send(parcel.claim)]:
        now, waiting = _first_of_each_key(waiting)
        reach("before-publish")
        outcomes = await _publish(now, timeout)
        reach("after-publish")
        stopped: set[str] = set()
        for parcel, outcome in zip(now, outcomes, strict=True):
            verdict = _verdict(parcel, outcome, pausing=len(routes) == 1)
            verdicts[parcel.claimed.seq] = verdict
            if isinstance(outcome, Unavailable) and outcome.code not in NOT_TRIED:
                carried.away = outcome
            if not isinstance(verdict, Published) and parcel.claimed.message.key is not None:
                stopped.add(parcel.claimed.message.key)
        # R17: the next of a key only after the one before was sent.
        waiting = [parcel for parcel in waiting if parcel.claimed.message.key not in stopped]
    return carried


def _sorted_out(claims: Iterable[Claim], routes: Routes, verdicts: dict[int, Verdict]) -> list[Parcel]:
    """What is to be sent; what need not be has its verdict at once."""
    parcels: list[Parcel] = []
    stopped: set[str] = set()
    for claim, claimed in ((each, claimed) for each in claims for claimed in each.messages):
        key = claimed.message.key
        if key in stopped:
            continue
        route = routes.route(claimed.message.type)
        if claimed.expired:
            verdicts[claimed.seq] = Expired()
        elif route is None:
            sentence = f"no route fits the type {claimed.message.type!r}"
            verdicts[claimed.seq] = Buried("NO_ROUTE", sentence, park=routes.first.park)
        elif not _is_whole(claimed):
            verdicts[claimed.seq] = Buried("CORRUPT_PAYLOAD", "the body is no JSON", park=route.park)
        else:
            parcels.append(Parcel(claim, claimed, route))
            continue
        if key is not None and isinstance(verdicts[claimed.seq], Buried):
            # Earlier ones of the key go out first; this one is judged when it is the head.
            if any(parcel.claimed.message.key == key for parcel in parcels):
                verdicts[claimed.seq] = Unsent()
            stopped.add(key)
    return parcels


def _is_whole(claimed: Claimed) -> bool:
    message = claimed.message
    if message.body is None or message.content_type != JSON:
        return True
    try:
        json.loads(message.body)
    except (ValueError, RecursionError):
        return False
    return True


def _first_of_each_key(parcels: Sequence[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
    """What can go now: of each key, all up to where the route changes (one line, whatever its routes); and the rest."""
    route_of: dict[str, Route] = {}
    now: list[Parcel] = []
    later: list[Parcel] = []
    turned: set[str] = set()
    for parcel in parcels:
        key = parcel.claimed.message.key
        if key is None:
            now.append(parcel)
        elif key in turned or route_of.setdefault(key, parcel.route) is not parcel.route:
            turned.add(key)
            later.append(parcel)
        else:
            now.append(parcel)
    return now, later


async def _publish(parcels: Sequence[Parcel], timeout: timedelta) -> list[Outcome]:
    """Publish each route's batch, side by side; the outcomes in the order of the parcels."""
    by_route: dict[int, list[int]] = {}
    for place, parcel in enumerate(parcels):
        by_route.setdefault(id(parcel.route), []).append(place)
    batches = [[parcels[place] for place in places] for places in by_route.values()]
    answers = await asyncio.gather(*(_publish_to(batch[0].route, batch, timeout) for batch in batches))
    outcomes: list[Outcome] = [Unavailable()] * len(parcels)
    for places, answer in zip(by_route.values(), answers, strict=True):
        for place, outcome in zip(places, answer, strict=True):
            outcomes[place] = outcome
    return outcomes


async def _publish_to(route: Route, batch: Sequence[Parcel], timeout: timedelta) -> Sequence[Outcome]:
    envelopes = [Envelope(parcel.claimed.message, route.topic) for parcel in batch]
    try:
        async with asyncio.timeout((timeout + GRACE).total_seconds()):
            return await route.to.publish(envelopes, timeout=timeout)
    except TimeoutError:
        return [Failed("TIMEOUT", "the transport did not answer in time", unknown=True)] * len(batch)
    except Exception as exc:  # noqa: BLE001 - a transport must not raise; if it does, its effect is unknown
        return [Failed("TRANSPORT_ERROR", f"{type(exc).__name__}: {exc}", unknown=True)] * len(batch)


def _verdict(parcel: Parcel, outcome: Outcome, *, pausing: bool) -> Verdict:
    # With one route, the relay itself pauses: there is nothing to write into a message that nobody tried to send.
    if isinstance(outcome, Unavailable) and (pausing or outcome.code in NOT_TRIED):
        return Unsent()
    return judge(outcome, parcel.claimed.attempts, parcel.route.retry, park=parcel.route.park)
