"""The table of what an outcome means."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.contracts.outbox import Buried, Published, Retry, Verdict
from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable
from postroom.relay.verdict import PAUSE, ROUTE_PATIENCE, judge, lost_with_its_relay, unrouted
from postroom.retry import RetryPolicy, Table

SECOND = timedelta(seconds=1)
POLICY = RetryPolicy(Table((5 * SECOND, 10 * SECOND)), max_attempts=3)


@pytest.mark.parametrize(
    ("outcome", "attempts", "verdict"),
    [
        (Sent("offset 7"), 0, Published()),
        (Failed("TIMEOUT", "slow"), 0, Retry(5 * SECOND, "TIMEOUT", "slow")),
        (Failed("TIMEOUT", "slow"), 1, Retry(10 * SECOND, "TIMEOUT", "slow")),
        (Failed("TIMEOUT", "slow"), 2, Buried("MAX_ATTEMPTS", "TIMEOUT: slow")),
        (Failed("TIMEOUT", unknown=True), 0, Retry(5 * SECOND, "TIMEOUT")),
        (Failed("HTTP_503", retry_after=60 * SECOND), 0, Retry(60 * SECOND, "HTTP_503")),
        (Rejected("TOO_LARGE", "9 MB"), 0, Buried("TOO_LARGE", "9 MB")),
        (Unavailable(), 2, Retry(PAUSE, "UNAVAILABLE", spent=False)),
        (Unavailable(retry_after=7 * SECOND), 0, Retry(7 * SECOND, "UNAVAILABLE", spent=False)),
    ],
    ids=str,
)
def test_an_outcome_has_one_meaning(outcome: Outcome, attempts: int, verdict: Verdict) -> None:
    assert judge(outcome, attempts, POLICY, park=True) == verdict


def test_a_route_that_skips_parks_nothing() -> None:
    assert judge(Rejected("NO"), 0, POLICY, park=False) == Buried("NO", park=False)


@pytest.mark.parametrize("park", [True, False])
def test_a_type_that_no_route_fits_is_dead_or_waits_and_waiting_spends_no_attempt(park: bool) -> None:
    sentence = "no route fits the type 'odd.type'"
    assert unrouted("odd.type", waits=False, park=park) == Buried("NO_ROUTE", sentence, park=park)
    assert unrouted("odd.type", waits=True, park=park) == Retry(ROUTE_PATIENCE, "NO_ROUTE", sentence, spent=False)


def test_a_message_lost_with_its_relay_is_retried_then_buried() -> None:
    lost = lost_with_its_relay(POLICY, park=True)
    assert isinstance(lost(1), Retry)
    assert isinstance(lost(2), Retry)
    assert lost(3) == Buried("CRASH_LOOP", "in flight each time a relay died or lost its lease")
