"""A database as Postroom uses it: one store with a part for each thing that is kept there.

```
Store ── schema   the tables: made, checked, dropped
      ├─ outbox   messages on their way out: put, claim, settle
      ├─ lanes    which relay may send which messages
      ├─ inbox    what was handled, and what failed
      └─ ops      what a person asks and does
```

The parts share one pool of connections. Each part is a contract of its own, in the file of its name. The seam is the
transition, never a SQL string: one method is one short transaction. No transaction stays open when a method returns.

Every method that looks at the clock takes `now`. None, as in production, means the database's own clock; tests own the
time by giving one. Any method may raise StoreUnavailable: then nothing happened, or everything did and the answer was
lost, and the same call may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, Self

from postroom.contracts.inbox import InboxStore
from postroom.contracts.lanes import LaneStore
from postroom.contracts.ops import OpsStore
from postroom.contracts.outbox import OutboxStore
from postroom.contracts.schema import SchemaStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """What a store promises. Tests, docs and the relay read the same declaration; a skipped test names one of these."""

    name: str
    durable: bool
    """What was committed is there after the process, or the machine, died."""
    shared: bool
    """Several processes may use it at once."""
    concurrent_writers: bool
    """Two transactions may write at the same time, so that one may commit late with an earlier seq."""
    all_or_none: bool
    """Messages that are put together are all written or none is; else a crash, or a known id, leaves the first ones."""
    time_precision: timedelta
    """The smallest step of the times it keeps."""
    notices_commits: bool
    """A watch is told of every commit; else only of those after which a waker was called, if the store has one."""
    notices_relays: bool
    """A watch is told when a relay comes or goes, or a person requeues; else that is seen at the next heartbeat, or poll."""


class Store(Protocol):
    """One database. Opened by `postroom.open_store(url)`, used as an async context manager or closed by hand."""

    @property
    def capabilities(self) -> StoreCapabilities:
        """What this store promises."""

    @property
    def schema(self) -> SchemaStore:
        """The tables."""

    @property
    def outbox(self) -> OutboxStore:
        """Messages on their way out."""

    @property
    def lanes(self) -> LaneStore:
        """Which relay may send which messages."""

    @property
    def inbox(self) -> InboxStore:
        """What was handled. Raises ConfigError where there is no inbox, as in memory."""

    @property
    def ops(self) -> OpsStore:
        """What a person asks and does."""

    async def close(self) -> None:
        """Close every connection. May be called twice."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...


class Waker:
    """Tells relays that something was committed. This base class does nothing: its store notices by itself."""

    def wake(self) -> None:
        """Tell relays to look: something was committed. Never waits or fails; many calls are one; any thread may call."""

    def close(self) -> None:
        """Send what is still to be sent, and end. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
