"""What a database must do for an inbox: remember what was handled, count what failed, keep what was put aside.

A message is handled in one transaction with its row: the row first, then the handler, then the commit. A second delivery
waits at the row until the first has ended, and then finds it (it is known) or not (it is this one's turn).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

from postroom.contracts.transport import Delivery, Identity
from postroom.message import Message

DeliveryState: TypeAlias = Literal["handled", "failing", "dead", "requeued"]
"""Of a message at one consumer. `failing` waits for its next try; `dead` waits for a person; `requeued` was dead, and goes
again."""


UNFINISHED = "UNFINISHED"
"""The code of a try that was counted before it began: until it ends, or for good if its process died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is on record of a message at one consumer."""

    consumer: str
    source: str
    id: UUID
    outcome: DeliveryState
    attempts: int
    at: datetime
    """When that was written."""
    code: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQuery:
    """Which records a person, or the inbox itself, wants. Empty: all of them."""

    consumer: str | None = None
    ids: Collection[UUID] = ()
    source: str | None = None
    outcome: DeliveryState | None = None
    limit: int | None = None
    """Only so many of the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadDelivery:
    """A delivery that was given up, with all that it takes to handle it again."""

    consumer: str
    message: Message
    source: str
    topic: str
    attempts: int
    code: str
    error: str
    dead_at: datetime
    requeued_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadQuery:
    """Which dead deliveries a person wants. Empty: all of them."""

    consumer: str | None = None
    ids: Collection[UUID] = ()
    type: str | None = None
    key: str | None = None
    code: str | None = None
    requeued: bool | None = None
    """Only those that were requeued, or only those that were not."""
    limit: int | None = None


class Transaction(Protocol):
    """A transaction in which messages are handled by async handlers. It commits at its end, unless something is raised."""

    @property
    def handle(self) -> Any:
        """What the handler writes with: the driver's own connection or session; `Outbox.put` takes it."""

    async def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]:
        """Write down that these are handled, and return those that were not before. Waits while another transaction
        handles one of them."""

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        """Remove these from the dead deliveries."""

    def is_whole(self) -> bool:
        """Return False if the handler ended the transaction, or swallowed an error that broke it."""

    def is_ended(self) -> bool:
        """Return True if the handler ended the transaction itself: commit, rollback, or a closed handle. Then its effects and
        the row of the inbox may be committed."""

    def is_away(self) -> bool:
        """Return True if the connection broke, which is not the fault of the handler. Closed by the handler is not broken."""


class BlockingTransaction(Protocol):
    """A `Transaction` for sync handlers, used in one thread."""

    @property
    def handle(self) -> Any: ...
    def remember(self, consumer: str, events: Collection[Identity]) -> set[Identity]: ...
    def unbury(self, consumer: str, events: Collection[Identity]) -> None: ...
    def is_whole(self) -> bool: ...
    def is_ended(self) -> bool: ...
    def is_away(self) -> bool: ...


class InboxStore(Protocol):
    """What was handled, and what failed. Everything raises StoreUnavailable while the database is away."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Begin a transaction for async handlers. An error raised inside comes out unchanged, after the rollback."""

    def blocking(self) -> AbstractContextManager[BlockingTransaction]:
        """Begin a transaction for sync handlers: call it in a thread."""

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        """Count a failed try, in a transaction of its own, and return how many there were; 0 if it is handled or dead by now.

        With the code UNFINISHED a try is counted before it begins; its end is then not counted again."""

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str, *, committed: bool = False) -> None:
        """Keep the delivery as dead, with its bytes, in a transaction of its own. A second call changes nothing. A handled
        message stays handled, unless *committed* says that the handler committed its row too early."""

    async def known(self, query: KnownQuery) -> Sequence[Known]:
        """Return the records of the messages that match, in the order they were written."""

    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        """Return the dead deliveries that match, oldest first."""

    async def requeue(self, query: DeadQuery) -> int:
        """Let these be handled again, by a consumer of that name, with no attempts made. Return how many."""

    async def counts(self) -> Mapping[str, Mapping[DeliveryState, int]]:
        """Return how many messages of each consumer are in each state."""

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        """Forget up to *limit* messages that this consumer handled before this moment, and return how many. Dead ones stay.
        Other consumers keep theirs: each has a retention of its own."""
