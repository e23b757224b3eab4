"""What was delivered before may have killed the process that handled it: what is to become of it now. Pure.

Its tries are counted before they begin, so that one that never ends counts too. One whose last try did not end goes alone:
if it kills the process again, it takes nothing else with it. So does the last try that one has: whoever is dead after it
died by itself, and not because it was handled beside another.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.contracts.inbox import UNFINISHED, Known
from postroom.contracts.transport import Delivery
from postroom.retry import MAX_ATTEMPTS, GiveUp

CRASH_LOOP = "CRASH_LOOP"
"""The code of a message whose tries were used up by processes that died."""
UNFINISHED_SAID = "its try has begun and not ended: it is being handled, or its process died"
CRASH_LOOP_SAID = "its last try never ended: each time, the process that handled it died or was killed"


@dataclass(frozen=True, slots=True)
class Try:
    """It is tried once more."""

    alone: bool
    """Nothing else is handled in this process meanwhile."""


def was_delivered_before(delivery: Delivery) -> bool:
    """As far as the broker can say; where it cannot, what may have been."""
    return delivery.redelivered > 0 or delivery.doubtful


def judged(before: Known | None, max_attempts: int) -> Try | GiveUp | None:
    """What follows from what is on record of one that was delivered before; None: it is done with.

    >>> judged(None, 6)
    Try(alone=False)
    """
    if before is None:
        return Try(alone=max_attempts <= 1)
    if before.outcome in ("handled", "dead"):
        return None
    was_lost = before.code == UNFINISHED
    if before.attempts >= max_attempts:
        return GiveUp(CRASH_LOOP if was_lost else MAX_ATTEMPTS)
    return Try(alone=was_lost or before.code == CRASH_LOOP or before.attempts + 1 >= max_attempts)
