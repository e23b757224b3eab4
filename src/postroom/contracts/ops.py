"""What a person, or a program that watches, asks of the messages and does to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

from postroom.message import Message

Status: TypeAlias = Literal["pending", "sending", "failed", "published", "dead", "expired", "discarded"]
OPEN: tuple[Status, ...] = ("pending", "sending", "failed")
SETTLED: tuple[Status, ...] = ("published", "dead", "expired", "discarded")
"""Discarded is not dead: a dead message may park its key, a discarded one never does (R4)."""

Progress: TypeAlias = Callable[[int], None]
"""Called with how many are done so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A message as a person sees it: with its state."""

    seq: int
    status: Status
    attempts: int
    lane: int | None
    """None: written by hand in a database that cannot compute it; the relay gives it one."""
    created_at: datetime
    updated_at: datetime
    message: Message
    owner: str | None = None
    locked_at: datetime | None = None
    """When the relay that has it in flight claimed it."""
    due_at: datetime | None = None
    settled_at: datetime | None = None
    digest: str | None = None
    last_error_code: str | None = None
    last_error: str | None = None
    parked: bool = False
    """Its key waits for a person: it is the dead head, or waits behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which messages a person wants to see. Empty: all of them."""

    ids: Collection[UUID] = ()
    status: Status | None = None
    type: str | None = None
    key: str | None = None
    since: datetime | None = None
    """Written at this moment or later."""
    before: int | None = None
    """Only those with a lower seq: with a limit, the next page of a long list."""
    limit: int | None = None
    """At most this many, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many messages are in each status, and how old the oldest open one is."""

    by_status: Mapping[Status, int]
    lag: timedelta
    """Age of the oldest open message that is due; zero when there is none."""
    parked: int = 0
    """How many of the open ones wait behind a dead message, until a person acts."""


class OpsStore(Protocol):
    """What a person asks and does."""

    async def counts(self, *, now: datetime | None = None) -> Counts:
        """Return how many messages are in each status, and the lag."""

    async def find(self, query: Query) -> Sequence[Record]:
        """Return the messages that match, oldest first."""

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        """Return up to *limit* ids of messages from *first* to *last*, both included, in order: for an id whose beginning
        a person typed."""

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        """Put dead and failed messages back to pending, attempts 0, same id; return how many (R25).

        A thousand in a transaction, oldest first: if it ends in between, what was done stays done. *told* is called with the
        number after each transaction. Messages written after it began are left out.

        Messages in flight, and those of any other status, stay as they are. A parked key moves again when the last
        dead message that parks it is requeued or discarded."""

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        """Settle dead, failed and pending messages as discarded; return how many. Those in flight stay as they are.

        A thousand in a transaction, as `requeue` does."""
