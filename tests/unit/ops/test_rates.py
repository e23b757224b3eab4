"""The totals and rates of a relay: pure, with the time as an argument."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from postroom.events import (
    BatchSettled,
    Event,
    LanesLost,
    LanesReleased,
    LanesTaken,
    MessageBuried,
    MessageRetried,
    RoutePaused,
    RouteResumed,
)
from postroom.ops.rates import RelayTotals

ID = UUID("018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
SECOND = timedelta(seconds=1)


def settled(**numbers: int) -> BatchSettled:
    return BatchSettled(seconds=0.01, **numbers)


def test_the_numbers_add_up() -> None:
    totals = RelayTotals(100.0)
    for event in (settled(published=3, failed=1), settled(published=2, dead=1, expired=4)):
        totals.add(event, 101.0)
    assert (totals.published, totals.failed, totals.dead, totals.expired) == (5, 1, 1, 4)
    assert totals.numbers == (5, 1, 1, 4, 0)


def test_lanes_are_those_taken_and_neither_given_back_nor_lost() -> None:
    totals = RelayTotals(0.0)
    for event in (LanesTaken(owner="a", lanes=(1, 2, 3)), LanesReleased(owner="a", lanes=(1,))):
        totals.add(event, 0.0)
    totals.add(LanesLost(owner="a", lanes=(2,)), 0.0)
    assert totals.lanes == {3}


def test_the_rate_now_is_of_the_last_seconds_and_the_rate_of_all() -> None:
    totals = RelayTotals(100.0)
    totals.add(settled(published=300), 110.0)
    assert (totals.rate(110.0), totals.rate_now(110.0)) == (30, 60)
    assert (totals.rate(120.0), totals.rate_now(120.0)) == (15, 0)


def test_to_ask_for_a_rate_changes_nothing() -> None:
    totals = RelayTotals(100.0)
    totals.add(settled(published=300), 110.0)
    assert totals.rate_now(200.0) == 0
    assert totals.rate_now(110.0) == 60


def test_the_first_moment_has_a_rate() -> None:
    assert (RelayTotals(5.0).rate(5.0), RelayTotals(5.0).rate_now(5.0)) == (0, 0)


def test_a_busy_relay_keeps_few_samples() -> None:
    totals, now = RelayTotals(100.0), 100.0
    for _ in range(10_000):
        now += 0.001
        totals.add(settled(published=1), now)
    assert len(totals._samples) < 200
    assert totals.rate_now(now) == pytest.approx(1_000, rel=0.05)


def test_the_last_failure_is_a_try_that_was_spent() -> None:
    totals = RelayTotals(0.0)
    waited = MessageRetried(id=ID, type="a", attempts=0, code="CONNECT_FAILED", delay=SECOND, spent=False)
    retried = MessageRetried(id=ID, type="a", attempts=1, code="TIMEOUT", delay=SECOND)
    buried = MessageBuried(id=ID, type="a", attempts=6, code="MAX_ATTEMPTS", error="TIMEOUT: no answer")
    failures, events = [], list[Event]([waited, retried, buried])
    for at, event in enumerate(events):
        totals.add(event, at)
        failures.append(totals.last_failure)
    assert failures == [None, retried, buried], "a wait that cost no attempt is no failure"


def test_a_relay_is_paused_when_all_its_brokers_are_away() -> None:
    totals = RelayTotals(0.0, brokers=2)
    gone = RoutePaused(route="mail", code="ENDPOINT_GONE", delay=None)
    away = RoutePaused(route="orders", code="CONNECT_FAILED", delay=SECOND)
    paused, events = [], list[Event]([away, gone, RouteResumed(route="orders", seconds=1.0)])
    for at, event in enumerate(events):
        totals.add(event, at)
        paused.append(totals.is_paused)
    assert paused == [False, True, False]
    assert totals.shut == [gone]
