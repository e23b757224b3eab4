"""What an outcome means for a message: the one table, and pure."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from postroom.contracts.lanes import OnLeaseLost
from postroom.contracts.outbox import Buried, Published, Retry, Verdict
from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable
from postroom.retry import GiveUp, RetryPolicy
from postroom.text import one_line

PAUSE = timedelta(seconds=1)
"""How long a message waits for a broker that is away and does not say how long."""
NO_ROUTE = "NO_ROUTE"
"""The error code of a message that no route fits."""
ROUTE_PATIENCE = timedelta(seconds=30)
"""How often a message that waits for a route is looked at again."""


def judge(
    outcome: Outcome,
    attempts: int,
    policy: RetryPolicy,
    *,
    park: bool,
    pause: timedelta = timedelta(0),
    roll: float | None = None,
) -> Verdict:
    """The verdict on a message that had *attempts* tries before this one.

    Sent is published. Failed is tried again until the attempts are used up; an unknown effect counts as a failure, never
    as sent (R18). Rejected is buried at once. Unavailable spends no attempt: that was the broker, not the message, which
    waits for as long as its route is paused.
    """
    match outcome:
        case Sent():
            return Published()
        case Failed(code, error, retry_after, _):
            decision = policy.decide(attempts + 1, retry_after=retry_after, roll=roll)
            if isinstance(decision, GiveUp):
                return Buried(decision.code, f"{code}: {error}", park=park)
            return Retry(decision.delay, code, error)
        case Rejected(code, error):
            return Buried(code, error, park=park)
        case Unavailable(code, error, retry_after):
            return Retry(max(retry_after or PAUSE, pause), code, error, spent=False)
        case _:
            assert_never(outcome)


def unrouted(type_: str, *, waits: bool, park: bool) -> Retry | Buried:
    """The verdict on a message that no route fits: dead, so that somebody sees it; or it waits for a route."""
    sentence = f"no route fits the type {one_line(repr(type_))}"
    if waits:
        return Retry(ROUTE_PATIENCE, NO_ROUTE, sentence, spent=False)
    return Buried(NO_ROUTE, sentence, park=park)


def lost_with_its_relay(policy: RetryPolicy, *, park: bool) -> OnLeaseLost:
    """The rule for messages that were in flight when their relay lost the lane (R6)."""

    def decide(attempts: int) -> Retry | Buried:
        decision = policy.decide(attempts)
        if isinstance(decision, GiveUp):
            return Buried("CRASH_LOOP", "in flight each time a relay died or lost its lease", park=park)
        return Retry(decision.delay, "LEASE_LOST", "in flight when its relay died or lost its lease")

    return decide
