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
    """Which of them a person, or the inbox itself, wants. Empty: all of them."""

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
        """Write down that these are handled; which of them were not before. Waits for whoever handles one of them now."""

    async def unbury(self, consumer: str, events: Collection[Identity]) -> None:
        """These are dead no more."""

    def is_whole(self) -> bool:
        """Is the transaction as it was begun? Not, when the handler ended it, or swallowed an error that broke it."""

    def is_ended(self) -> bool:
        """Did the handler end the transaction itself: commit, roll back, or close the handle? Then what it wrote, and the
        row that says so, may be committed."""

    def is_away(self) -> bool:
        """Did the connection break? Then that was the database, not the handler. One that the handler closed did not break."""


class BlockingTransaction(Protocol):
    """The same for sync handlers, used in one thread."""

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
        """Begin one, for async handlers. What a handler raises inside comes out as it is, after the rollback."""

    def blocking(self) -> AbstractContextManager[BlockingTransaction]:
        """Begin one, for sync handlers: called in a thread."""

    async def failed(self, consumer: str, event: Identity, code: str, error: str) -> int:
        """Count a try that failed, in a transaction of its own; how many there were. 0: it is handled or dead meanwhile.

        With the code UNFINISHED it is counted before it begins. How it ends, by this or by `remember`, is not counted again."""

    async def bury(self, consumer: str, delivery: Delivery, code: str, error: str, *, committed: bool = False) -> None:
        """Park the delivery with its bytes, in a transaction of its own. Twice is once. What is handled stays so, unless it
        is only the handler that *committed* its row too early."""

    async def known(self, query: KnownQuery) -> Sequence[Known]:
        """What is on record of the messages that match, in the order it was written."""

    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        """The dead deliveries that match, oldest first."""

    async def requeue(self, query: DeadQuery) -> int:
        """Let these be handled again, by whoever consumes in that name; with no attempts made. How many."""

    async def counts(self) -> Mapping[str, Mapping[DeliveryState, int]]:
        """How many messages of each consumer are in each state."""

    async def purge(self, consumer: str, before: datetime, *, limit: int = 10_000) -> int:
        """Forget up to *limit* messages that this consumer handled before this moment; how many. Dead ones stay, and so
        does what other consumers remember: each has a retention of its own."""
