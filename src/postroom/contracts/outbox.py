"""Messages on their way out: put, claim, settle. Nothing here sends anything.

```
              put                claim                 settle
  (nothing) ──────▶ open ────────────────▶ in flight ─────────▶ published · dead · expired · discarded
                     ▲  ▲                     │                          │
                     │  └──── retry, unsent ──┘        requeue           │
                     └───────────────────────────────────────────────────┘
```

Keys are spread over *lanes*. A relay takes a lane by lease and gets its *epoch*, a number that only grows; it claims
messages of its lanes, sends them, and settles the claim. The claim row is the fence: taking the lane over
deletes it, and a settle that does not find it changes nothing. The rules R1 … R25 behind each method are explained in
`docs/explain/lanes.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from postroom.message import Message

ALONE_FROM = 2
"""A message that was in flight this often when its relay died travels alone (R8)."""
ERROR_MAX = 512
"""How many characters of an error's text are kept: enough to see what happened, and a row stays small."""


# ── verdicts: what became of a message in a claim ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Published:
    """The broker confirmed it durably."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It may work later. Its key waits with it; other keys go on."""

    after: timedelta
    code: str
    error: str = ""
    spent: bool = True
    """Whether this counts as an attempt. It does not when the broker was away: that says nothing about the message."""


@dataclass(frozen=True, slots=True)
class Buried:
    """It will not be tried again until a person says so. It may have been delivered, if an answer was lost."""

    code: str
    error: str = ""
    park: bool = True
    """Whether its key waits until a person requeues or discards it; else later messages of the key pass it by."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Its time ran out before it was sent. Its key goes on."""


@dataclass(frozen=True, slots=True)
class Unsent:
    """It was not touched: the relay stopped, or an earlier one of its key failed."""


Verdict: TypeAlias = Published | Retry | Buried | Expired | Unsent


# ── a claim, and how it ends ───────────────────────────────────────────────────────────────────────────────────────────


class Claimed(NamedTuple):
    """A message in flight, as its relay holds it. A tuple: there is one for every message, and it is made quickly."""

    seq: int
    attempts: int
    """Tries made before this one."""
    expired: bool
    """It is past its time by the database's clock: settle it as Expired, do not send it."""
    message: Message


@dataclass(frozen=True, slots=True)
class Claim:
    """The messages of one lane that one relay has in flight, under an id that is never used again (R3)."""

    id: int
    lane: int
    epoch: int
    owner: str
    lost: int
    """How often one of its messages was in flight when a relay died, or lost its lease: then all of them were at least once,
    and one of them may be what killed it (R8)."""
    messages: Sequence[Claimed]
    held: frozenset[str] = frozenset()
    """Keys of it that were waiting behind a failed head; the store looks after them when the claim is settled."""
    emptied: bool = False
    """The scan reached the end of the lane: claiming again would find nothing."""

    @property
    def solo(self) -> bool:
        """Whether its one message was lost so often that it travels alone."""
        return self.lost >= ALONE_FROM


@dataclass(frozen=True, slots=True)
class Settlement:
    """A claim with a verdict per message. A seq without one is Unsent."""

    claim: Claim
    verdicts: Mapping[int, Verdict]
    """By seq; those of other claims may be among them."""
    is_published: bool = False
    """Every message of it was confirmed: there is nothing to look at one by one. Only the relay can say so cheaply."""

    @property
    def own_verdicts(self) -> dict[int, Verdict]:
        """Return the verdicts on the messages of this claim."""
        return {each.seq: self.verdicts[each.seq] for each in self.claim.messages if each.seq in self.verdicts}

    @property
    def stopped_keys(self) -> set[str]:
        """Return the keys of this claim that wait from now on: one of their messages failed."""
        return {
            claimed.message.key
            for claimed in self.claim.messages
            if claimed.message.key is not None and isinstance(self.verdicts.get(claimed.seq), Retry | Buried)
        }


Settled: TypeAlias = Literal["settled", "already", "lost"]
"""`already`: this settle was carried out before, and its answer was lost. `lost`: the lane was taken over."""


# ── the contract ───────────────────────────────────────────────────────────────────────────────────────────────────────


class OutboxStore(Protocol):
    """Messages on their way out. Services write theirs by `Outbox.put`, on the handle they already hold."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction and yield a handle that `Outbox.put` takes; commit at the end, roll back on an error."""

    async def put(self, messages: Sequence[Message]) -> None:
        """Write the messages, in this order, in one transaction: all of them or none. What is written after a commit
        gets a higher seq than what it committed (R1).

        Raises InvalidMessage, or DuplicateMessage when an id or idempotency key is known."""

    async def claim(
        self,
        owner: str,
        lanes: Mapping[int, int],
        *,
        limit: int,
        doubtful: Collection[int] = (),
        alone: bool = False,
        now: datetime | None = None,
    ) -> Sequence[Claim]:
        """Claim up to *limit* messages of these lanes (lane to epoch): committed, open, due (R12), oldest first, and
        fairly over the lanes.

        *doubtful* are the lanes whose answer to a claim or a settle was lost. The caller holds nothing there, so a claim of
        this owner there is an orphan, which would never be settled: it is dropped, untouched (R22).
        This happens behind the lane's lock: where the lost claim's commit is still under way, this one waits for it. And it
        happens in every doubtful lane, also where nothing is claimed.

        *alone* says that nothing else is in flight in this process, until the claim is settled: it is kept in the claim, for
        the relay that finds it after a crash (R8).

        Only lanes that are this owner's at that epoch, by a lock held to the commit (R11), and that have nothing in
        flight. A key whose head waits for its retry or is parked waits as a whole (R13); a message that is not due yet
        does not hold its key. What is committed late with an earlier seq is found like any other (R15)."""

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        """Record the verdicts of whole claims; return, by claim id, what came of it (R20, R21, R23).

        Each claim is fenced by its own row, in the same transaction: without it, nothing of that claim is written.
        A row that a person settled meanwhile keeps that outcome."""

    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        """Return whether a claim should look at these lanes. One cheap query, for a relay with nothing to do.

        True may turn out to be wrong (a message that has to wait); False is never wrong at that moment."""

    async def watch(self, woken: Callable[[], None]) -> None:
        """Call *woken* once the watch stands, and then when something may have been committed, a message or a change of
        lanes; until cancelled.

        Only a hint, and it may come late, too often or never: what is open decides, and the relay polls as well.
        Raises StoreUnavailable when the watch breaks."""


def per_lane(limit: int, lanes: int) -> int:
    """Return how many messages one claim looks for in each of so many lanes: its fair part, and at least four. Full lanes
    are claimed apart from the others, so that idle lanes leave no part unused.

    >>> per_lane(1024, 16), per_lane(1024, 1), per_lane(3, 64), per_lane(1, 64)
    (64, 1024, 3, 1)
    """
    return min(limit, max(-(-limit // max(lanes, 1)), 4))
