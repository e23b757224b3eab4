"""What a database must do for Postroom: the contract of a store.

A store keeps messages and decides who may send them. The seam is the transition, never a SQL string: one method is one
short transaction. Nothing here sends anything, and no transaction stays open when a method returns.

```
              put                claim                 settle
  (nothing) ──────▶ open ────────────────▶ in flight ─────────▶ published · dead · expired · discarded
                     ▲  ▲                     │                          │
                     │  └──── retry, unsent ──┘        requeue           │
                     └───────────────────────────────────────────────────┘
```

Keys are spread over *lanes*. A relay takes a lane by lease and gets its *epoch*, a number that only grows; it claims
messages of its lanes, sends them, and settles the claim. The claim row is the fence: whoever takes the lane over
deletes it, and a settle that does not find it changes nothing. The rules R1 … R25 behind each method are explained in
`docs/explain/lanes.md`.

Every method that looks at the clock takes `now`. None, as in production, means the database's own clock; tests own the
time by giving one. Any method may raise StoreUnavailable: then nothing happened, or everything did and the answer was
lost, and the same call may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias
from uuid import UUID

from postroom.message import Message

Status: TypeAlias = Literal["pending", "sending", "failed", "published", "dead", "expired", "discarded"]
OPEN: tuple[Status, ...] = ("pending", "sending", "failed")
SETTLED: tuple[Status, ...] = ("published", "dead", "expired", "discarded")
"""Discarded is not dead: a dead message may park its key, a discarded one never does (R4)."""

ALONE_FROM = 2
"""A message that was so often in flight when its relay died travels alone (R8)."""
ERROR_MAX = 512
"""How many characters of an error's text are kept: enough to see what happened, and a row stays small."""


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
    """Messages that are put together are there together, or none of them is; else a crash, or a known id, in between leaves the
    first ones."""
    time_precision: timedelta
    """The smallest step of the times it keeps."""
    notices_commits: bool
    """A watch is told of every commit; else only of those after which a waker was called, if the store has one."""
    notices_relays: bool
    """A watch is told when a relay comes or goes, or a person requeues; else that is seen at the next beat, or poll."""


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
    """Does this count as an attempt? Not when the broker was away: that says nothing about the message."""


@dataclass(frozen=True, slots=True)
class Buried:
    """It will not be tried again until a person says so. It may have been delivered, if an answer was lost."""

    code: str
    error: str = ""
    park: bool = True
    """Does its key wait until a person requeues or discards it? Else later messages of the key pass it by."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Its time ran out before it was sent. Its key goes on."""


@dataclass(frozen=True, slots=True)
class Unsent:
    """It was not touched: the relay stopped, or an earlier one of its key failed."""


Verdict: TypeAlias = Published | Retry | Buried | Expired | Unsent
OnLeaseLost: TypeAlias = Callable[[int], Retry | Buried]
"""What to do with a message that was in flight when its relay lost the lane, given the attempts including this one."""


# ── what goes in and out ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Lane:
    """A slice of the keys, and who may send it."""

    lane: int
    epoch: int
    owner: str | None
    lease_until: datetime | None


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
    """The store went a long way for these, to the end of the lane: there is nothing behind them, and no use in another look."""

    @property
    def solo(self) -> bool:
        """Its one message was lost so often that it travels alone."""
        return self.lost >= ALONE_FROM


@dataclass(frozen=True, slots=True)
class Settlement:
    """A claim with a verdict per message. A seq without one is Unsent."""

    claim: Claim
    verdicts: Mapping[int, Verdict]
    """By seq; those of other claims may be among them."""
    is_published: bool = False
    """Every message of it was confirmed: there is nothing to look at one by one. Only whoever settles can say so cheaply."""

    @property
    def own_verdicts(self) -> dict[int, Verdict]:
        """The verdicts on the messages of this claim."""
        return {each.seq: self.verdicts[each.seq] for each in self.claim.messages if each.seq in self.verdicts}

    @property
    def stopped_keys(self) -> set[str]:
        """The keys of it that have to wait from now on: one of their messages failed."""
        return {
            claimed.message.key
            for claimed in self.claim.messages
            if claimed.message.key is not None and isinstance(self.verdicts.get(claimed.seq), Retry | Buried)
        }


Progress: TypeAlias = Callable[[int], None]
"""Hears how far something has come."""
Settled: TypeAlias = Literal["settled", "already", "lost"]
"""`already`: this settle was carried out before, and its answer was lost. `lost`: the lane was taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayInfo:
    """A relay that says it is alive. `owner` is unique per process start; `name` is what a person called it."""

    owner: str
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    process: str = ""
    """Which process it is, beyond its pid: machine start, namespaces, time of start. Empty: nobody can tell (R5)."""
    seen_at: datetime | None = None


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
    """Its key waits for a person: it is the dead head, or stands behind it."""


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
    """The newest so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many messages are in each status, and how old the oldest open one is."""

    by_status: Mapping[Status, int]
    lag: timedelta
    """Age of the oldest open message that is due; zero when there is none."""
    parked: int = 0
    """How many of the open ones wait behind a dead message, until a person acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What `migrate` did."""

    before: int
    after: int
    applied: Sequence[str] = field(default=())


# ── the contract, split by who reads it ────────────────────────────────────────────────────────────────────────────────


class Schema(Protocol):
    """The tables: made, brought up to date, checked."""

    async def migrate(self) -> Migration:
        """Create the tables, or bring them up to date. Twice is the same as once; of two at once, one waits.

        Raises SchemaMismatch when they are newer than this Postroom, or were made with another number of lanes."""

    async def check(self) -> None:
        """Raise SchemaMismatch, with the command to type, unless the tables are exactly what this Postroom needs."""


class Writing(Protocol):
    """Messages written in transactions of the store's own. Services use `Outbox.put` on the handle they already hold."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction and yield a handle that `Outbox.put` takes; commit at the end, roll back on an error."""

    async def put(self, messages: Sequence[Message]) -> None:
        """Write the messages, in this order, in one transaction: all of them or none. What is written after a commit
        gets a higher seq than what it committed (R1).

        Raises InvalidMessage, or DuplicateMessage when an id or idempotency key is known."""


class Lanes(Protocol):
    """Who may send what."""

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        """Say that this relay is alive. Saying it again refreshes it."""

    async def leave(self, owner: str) -> None:
        """Say that this relay is gone. Its lanes are not touched: release them first."""

    async def relays(self) -> Sequence[RelayInfo]:
        """Every relay on record, with the moment it was last seen."""

    async def lanes(self) -> Sequence[Lane]:
        """Every lane, in order."""

    async def take(
        self,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        lost: OnLeaseLost,
        gone: Collection[str] = (),
        now: datetime | None = None,
    ) -> Sequence[Lane]:
        """Take up to *limit* lanes that are free, whose lease ran out, or whose owner is among those known to be *gone*
        (R5); each gets the next epoch.

        Whatever an earlier owner still had in flight there is let go in the same transaction: one attempt is added, and
        *lost* says whether it is retried or buried (R6). Of several of one key the first one's wait is the key's.

        A message lost this way travels only with its like, and alone from the second loss on (R8). It is buried only if it
        was alone when it was lost, in a claim that says so: who was lost in company keeps its last attempt."""

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        """Prolong the leases of these lanes (lane to epoch); answer which are still this owner's, at that epoch (R9)."""

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        """Give these lanes back, at once free for others; answer which were.

        A lane with a claim in flight, or of another owner or epoch, stays as it is (R24)."""


class Flow(Protocol):
    """Messages on their way out."""

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

        *doubtful* are those of the lanes of which an answer was lost, to a claim or to a settle. Whoever asks holds nothing
        there, so a claim of this owner there is an orphan, which nobody would ever settle: it is dropped, untouched (R22).
        This happens behind the lane's lock: where the lost claim's commit is still under way, this one waits for it. And it
        happens in every doubtful lane, also where nothing is claimed.

        *alone* says that nothing else is in flight in this process, until the claim is settled: it is kept in the claim, for
        whoever finds it after a crash (R8).

        Only lanes that are this owner's at that epoch, by a lock held to the commit (R11), and that have nothing in
        flight. A key whose head waits for its retry or is parked waits as a whole (R13); a message that is not due yet
        does not hold its key. What is committed late with an earlier seq is found like any other (R15)."""

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        """Record the verdicts of whole claims; answer, by claim id, what came of it (R20, R21, R23).

        Each claim is fenced by its own row, in the same transaction: without it, nothing of that claim is written.
        A row that a person settled meanwhile keeps that outcome."""

    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        """Is there anything in these lanes that a claim should look at? One cheap query, for a relay with nothing to do.

        True may turn out to be nothing (a message that has to wait); False is never wrong at that moment."""

    async def watch(self, woken: Callable[[], None]) -> None:
        """Call *woken* once the watch stands, and then when something may have been committed, a message or a change of
        lanes; until cancelled.

        Only a hint, and it may come late, too often or never: what is open decides, and polling stands behind it.
        Raises StoreUnavailable when the watch breaks."""


class Operating(Protocol):
    """What a person asks and does."""

    async def counts(self, *, now: datetime | None = None) -> Counts:
        """How many messages are in each status, and the lag."""

    async def find(self, query: Query) -> Sequence[Record]:
        """The messages that match, oldest first."""

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        """Up to *limit* ids of messages from the first to the last one, both included, in order: a person typed the beginning
        of one."""

    async def requeue(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        """Put dead and failed messages back to pending, attempts 0, same id; answer how many (R25).

        A thousand in a transaction, from the oldest on: if it ends in between, what was done stays done. *told* hears after
        each how many there were. What was written after it began is not meant.

        Messages in flight, and those of any other status, stay as they are. A parked key moves again when the last
        dead message that parks it is requeued or discarded."""

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        """Settle dead, failed and pending messages as discarded; answer how many. Those in flight stay as they are.

        A thousand in a transaction, as `requeue` does."""


class Store(Schema, Writing, Lanes, Flow, Operating, Protocol):
    """All of it. Opened by `postroom.open_store(url)`, used as an async context manager or closed by hand."""

    @property
    def capabilities(self) -> StoreCapabilities:
        """What this store promises."""

    async def close(self) -> None:
        """Let go of every connection. Twice is fine."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...


class Waker:
    """Tells relays that something was committed. This one need not: its store notices by itself."""

    def wake(self) -> None:
        """Something was committed: look. Never waits, never fails, and many at once are one; any thread may call it."""

    def close(self) -> None:
        """Send what is still to be sent, and end. Twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def per_lane(limit: int, lanes: int) -> int:
    """How many messages one claim looks for in each of so many lanes: its fair part, and some where that is next to
    nothing. Whoever claims asks for lanes that are known to be full by themselves, so that idle ones leave no part unused.

    >>> per_lane(1024, 16), per_lane(1024, 1), per_lane(3, 64), per_lane(1, 64)
    (64, 1024, 3, 1)
    """
    return min(limit, max(-(-limit // max(lanes, 1)), 4))
