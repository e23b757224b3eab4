"""What became of a message where it was received, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import assert_never
from uuid import UUID

from postroom.clock import utcnow
from postroom.contracts.inbox import UNFINISHED, InboxStore, Known, KnownQuery
from postroom.ops.words import count, ordinal, roughly
from postroom.text import without_trace


async def explain_received(store: InboxStore, message_id: UUID, *, now: datetime | None = None) -> Sequence[str]:
    """Say what each inbox of this database did with the message; nothing, when none has seen it."""
    found = await store.known(KnownQuery(ids=[message_id]))
    return [sentence for known in found for sentence in _sentences(known, now or utcnow())]


def _sentences(known: Known, now: datetime) -> Iterator[str]:
    inbox, at = f"The inbox {known.consumer}", _when(known.at, now)
    match known.outcome:
        case "handled":
            yield f"{inbox} handled it {at}, at {ordinal(max(known.attempts, 1))} try."
        case "failing" if known.code == UNFINISHED:
            yield f"{inbox} began {ordinal(known.attempts)} try of it {at}: it is being handled, or its process died in it."
        case "failing":
            yield f"{inbox} failed to handle it {at}, at {ordinal(known.attempts)} try: {_error(known)}."
            yield "It is tried again by itself."
        case "dead":
            yield f"{inbox} gave it up {at}, after {count(known.attempts, 'try')}: {_error(known)}."
            yield f"Mend the cause, then run `postroom inbox requeue --consumer {known.consumer} {known.id}`."
        case "requeued":
            yield f"A person let the inbox {known.consumer} handle it again {at}: a running `postroom consume` takes it."
        case unknown:
            assert_never(unknown)


def _error(known: Known) -> str:
    told = ": ".join(filter(None, (known.code, without_trace(known.error or ""))))
    return told.rstrip(". ") or "no error was kept"


def _when(moment: datetime, now: datetime) -> str:
    return f"at {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z ({roughly(abs(now - moment))} ago)"
