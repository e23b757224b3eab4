"""Writing down what became of a batch: repeated until it is known to be done, or the lanes are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, assert_never

from postroom import events
from postroom.clock import monotonic
from postroom.contracts.outbox import Buried, Claim, Claimed, Expired, Published, Retry, Settlement, Unsent, Verdict
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.events import Listeners
from postroom.telemetry.failpoints import reach
from postroom.text import one_line

Result = TypeVar("Result")
PAUSE_SECONDS = 0.2
"""Between two tries to settle while the database is away."""


class Settler:
    """Settles batches in a store."""

    def __init__(self, store: Store, patience: timedelta, listeners: Listeners) -> None:
        self._store, self._patience, self._listeners = store, patience, listeners

    async def settle(
        self, claims: Sequence[Claim], verdicts: Mapping[int, Verdict], is_mine: Callable[[Claim], bool]
    ) -> list[int] | None:
        """Record the verdicts, repeating while the answer does not come and a lane of it is still mine (R21); which
        lanes turned out to be lost. None: no answer came, and nobody knows what became of it (R10)."""
        begin = monotonic()
        whole = all_published(claims, verdicts)
        settlements = [Settlement(claim, verdicts, whole) for claim in claims]
        while any(map(is_mine, claims)):
            try:
                answers = await within(self._patience, self._store.outbox.settle(settlements))
            except StoreUnavailable:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            reach("after-settle")
            if self._listeners:
                self._tell([each for each in settlements if answers[each.claim.id] != "lost"], monotonic() - begin)
            return [claim.lane for claim in claims if answers[claim.id] == "lost"]
        return None

    def _tell(self, settlements: Sequence[Settlement], seconds: float) -> None:
        """One event for each message that went wrong, and one for the batch."""
        numbers: Counter[type] = Counter()
        for settlement in settlements:
            if settlement.is_published:
                numbers[Published] += len(settlement.claim.messages)
                continue
            for claimed in settlement.claim.messages:
                verdict = settlement.verdicts.get(claimed.seq)
                waits_unspent = isinstance(verdict, Retry) and not verdict.spent
                numbers[Unsent if waits_unspent else type(verdict)] += 1
                if not isinstance(verdict, Published | Unsent | None):
                    self._listeners(_event(claimed, verdict))
        self._listeners(
            events.BatchSettled(
                published=numbers[Published],
                failed=numbers[Retry],
                dead=numbers[Buried],
                expired=numbers[Expired],
                seconds=seconds,
            )
        )


async def within(limit: timedelta, call: Awaitable[Result]) -> Result:
    """Return what the store answers. Raises StoreUnavailable when it does not answer in time.

    No call may take longer than the lease allows: what it would answer then is of no use. It may have been carried out all
    the same: what becomes of that is decided as for any answer that was lost (R21, R22)."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            return await call
    except TimeoutError:
        raise StoreUnavailable(
            f"The store did not answer within {limit.total_seconds():g} s: look for a lock that is held, or a slow disk."
        ) from None


def all_published(claims: Sequence[Claim], verdicts: Mapping[int, Verdict]) -> bool:
    """Was every message of the batch confirmed?"""
    return len(verdicts) == sum(len(claim.messages) for claim in claims) and set(map(type, verdicts.values())) == {
        Published
    }


def _event(claimed: Claimed, verdict: Retry | Buried | Expired) -> events.Event:
    message, tries = claimed.message, claimed.attempts
    who: dict[str, Any] = {
        "id": message.id,
        "type": one_line(message.type),
        "correlation_id": message.correlation_id,
        "idempotency_key": message.idempotency_key,
    }
    match verdict:
        case Retry(after, code, error, spent):
            return events.MessageRetried(
                **who, attempts=tries + spent, code=code, error=one_line(error), delay=after, spent=spent
            )
        case Buried(code, error):
            return events.MessageBuried(**who, attempts=tries + 1, code=code, error=one_line(error))
        case Expired():
            return events.MessageExpired(**who, attempts=tries, code="EXPIRED")
        case _:
            assert_never(verdict)
