"""The messages in memory: the contract in its plainest words.

The line, the waiting keys and the parked ones are computed from the messages each time, with none of the bookkeeping that
makes a database fast. One class is every part of the store that concerns messages, because all of them look at these rows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.contracts.ops import Counts, Progress, Query, Record, Status
from postroom.contracts.outbox import (
    Buried,
    Claim,
    Claimed,
    Expired,
    Published,
    Retry,
    Settled,
    Settlement,
    Unsent,
    Verdict,
    per_lane,
)
from postroom.contracts.schema import Migration
from postroom.errors import DuplicateMessage
from postroom.message import Message
from postroom.stores.chunks import Chunk, Done, end_of, in_chunks
from postroom.stores.connections import OwnTransaction, handle_of
from postroom.stores.rows import kept_code, kept_error
from postroom.stores.selection import LostRow, after_a_crash, company
from postroom.stores.sql.insert import digest, line_hash

LANES_DEFAULT = 64


@dataclass(slots=True)
class Row:
    """One message and its state."""

    seq: int
    lane: int
    message: Message
    created_at: datetime
    attempts: int = 0
    due_at: datetime | None = None
    lost: int = 0
    tried_at: datetime | None = None
    settled_at: datetime | None = None
    outcome: Status | None = None
    parks: bool = False
    code: str | None = None
    error: str | None = None

    def due(self, now: datetime) -> bool:
        return self.due_at is None or self.due_at <= now

    def waits(self, now: datetime) -> bool:
        """It was tried, and its next try is not due: its key waits with it."""
        return self.tried_at is not None and not self.due(now)


class MemoryOutbox:
    """See `postroom.contracts` for what each method promises: `outbox`, `lanes`, `ops` and `schema`."""

    def __init__(self, lanes: int = LANES_DEFAULT) -> None:
        self._rows: dict[int, Row] = {}
        self._lanes = [Lane(lane, 0, None, None) for lane in range(lanes)]
        self._claims: dict[int, tuple[Claim, datetime]] = {}
        self._alone: set[int] = set()
        """Claims of whose relay nothing else was in flight."""
        self._relays: dict[str, RelayInfo] = {}
        self._seqs, self._claim_ids = count(1), count(1)
        self._watchers: list[Callable[[], None]] = []

    # ── schema ──

    async def migrate(self) -> Migration:
        return Migration(before=1, after=1)

    async def check(self) -> None:
        return None

    async def drop(self) -> None:
        self._rows.clear()

    # ── outbox: writing ──

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[OwnTransaction]:
        rows: list[Row] = []

        async def write(messages: Sequence[Message], tables: TableNames) -> None:  # noqa: ARG001 - it has no tables
            for message in messages:
                rows.append(self.written(message, rows))

        async with handle_of(write) as handle:
            yield handle
            self.commit(rows)

    async def put(self, messages: Sequence[Message]) -> None:
        async with self.transaction() as transaction:
            await transaction.write(messages, TableNames())

    def commit(self, rows: Sequence[Row]) -> None:
        """Let everybody see these rows."""
        self._rows.update((row.seq, row) for row in rows)
        self._wake()

    def written(self, message: Message, others: Sequence[Row]) -> Row:
        """A row for this message, with the next seq, as it is before its transaction commits."""
        for row in [*self._rows.values(), *others]:
            if row.message.id == message.id:
                raise DuplicateMessage(f"A message with id {message.id} is already in the outbox.", id=str(message.id))
            if message.idempotency_key is not None and row.message.idempotency_key == message.idempotency_key:
                raise DuplicateMessage(
                    f"A message with idempotency key {message.idempotency_key!r} is already in the outbox.",
                    idempotency_key=message.idempotency_key,
                )
        lane = line_hash(message.key or str(message.id)) % len(self._lanes)
        stored = replace_not_before(message)
        return Row(next(self._seqs), lane, stored, utcnow(), due_at=message.not_before)

    # ── lanes ──

    async def join(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        if relay.owner not in self._relays:
            self._wake()
        self._relays[relay.owner] = replace(relay, seen_at=now or utcnow())

    async def leave(self, owner: str) -> None:
        self._relays.pop(owner, None)
        self._wake()

    async def relays(self) -> Sequence[RelayInfo]:
        return sorted(self._relays.values(), key=lambda relay: relay.owner)

    async def all(self) -> Sequence[Lane]:
        return list(self._lanes)

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
        now = now or utcnow()
        free = [lane for lane in self._lanes if self._takeable(lane, now) or lane.owner in gone]
        taken = [Lane(lane.lane, lane.epoch + 1, owner, now + lease) for lane in free[:limit]]
        for lane in taken:
            self._lanes[lane.lane] = lane
            self._let_go(lane.lane, lost, now)
        return taken

    def _takeable(self, lane: Lane, now: datetime) -> bool:
        return lane.lease_until is None or lane.lease_until < now

    def _let_go(self, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        """Count an attempt for what an earlier owner had in flight here, and drop its claim."""
        for claim, _ in [held for held in self._claims.values() if held[0].lane == lane]:
            del self._claims[claim.id]
            rows = [self._rows[claimed.seq] for claimed in claim.messages]
            still_open = [
                LostRow(row.seq, row.message.key, row.attempts, row.lost) for row in rows if row.settled_at is None
            ]
            alone = {row.seq for row in rows} if claim.id in self._alone else set[int]()
            verdicts, _ = after_a_crash(still_open, lost, alone)
            for seq, verdict in verdicts.items():
                self._rows[seq].lost += 1
                self._record(self._rows[seq], verdict, now)

    async def renew(
        self, owner: str, lanes: Mapping[int, int], *, lease: timedelta, now: datetime | None = None
    ) -> frozenset[int]:
        now = now or utcnow()
        mine = self._mine(owner, lanes)
        for lane in mine:
            self._lanes[lane] = replace(self._lanes[lane], lease_until=now + lease)
        return frozenset(mine)

    async def release(self, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        free = [lane for lane in self._mine(owner, lanes) if not self._busy(lane)]
        for lane in free:
            self._lanes[lane] = replace(self._lanes[lane], owner=None, lease_until=None)
        self._wake()
        return frozenset(free)

    def _mine(self, owner: str, lanes: Mapping[int, int]) -> list[int]:
        known = (lane for lane in sorted(lanes) if 0 <= lane < len(self._lanes))
        return [lane for lane in known if (self._lanes[lane].owner, self._lanes[lane].epoch) == (owner, lanes[lane])]

    def _busy(self, lane: int) -> bool:
        return any(claim.lane == lane for claim, _ in self._claims.values())

    # ── outbox ──

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
        now = now or utcnow()
        mine = self._mine(owner, lanes)
        self._drop_orphans(set(mine) & set(doubtful))
        free = [lane for lane in mine if not self._busy(lane)]
        lines = {lane: self._line(lane, now)[: per_lane(limit, len(free))] for lane in free}
        fair = sorted((place, lane, row.seq) for lane, line in lines.items() for place, row in enumerate(line))[:limit]
        chosen: defaultdict[int, list[Row]] = defaultdict(list)
        for _, lane, seq in fair:
            chosen[lane].append(self._rows[seq])
        claims = [self._claimed(owner, lane, lanes[lane], rows, now) for lane, rows in sorted(chosen.items())]
        self._claims.update((claim.id, (claim, now)) for claim in claims)
        self._alone |= {claim.id for claim in claims if alone}
        return claims

    def _drop_orphans(self, lanes: Collection[int]) -> None:
        """R22: nothing of a claim in these lanes is held by anybody."""
        self._claims = {id: held for id, held in self._claims.items() if held[0].lane not in lanes}

    def _line(self, lane: int, now: datetime) -> list[Row]:
        """The messages of a lane that may go, in order, as far as they may travel together."""
        open_rows = [row for row in self._rows.values() if row.lane == lane and row.settled_at is None]
        held = self._held(lane, now)
        ready = sorted(
            (row for row in open_rows if row.due(now) and row.message.key not in held), key=lambda row: row.seq
        )
        return company(ready)

    def _held(self, lane: int, now: datetime) -> set[str]:
        """The keys that wait: for the next try of a message of theirs, or for a person."""
        rows = (row for row in self._rows.values() if row.lane == lane and row.message.key is not None)
        return {
            str(row.message.key)
            for row in rows
            if (row.settled_at is None and row.waits(now)) or (row.outcome == "dead" and row.parks)
        }

    def _claimed(self, owner: str, lane: int, epoch: int, rows: Sequence[Row], now: datetime) -> Claim:
        messages = [Claimed(row.seq, row.attempts, _expired(row, now), row.message) for row in rows]
        return Claim(next(self._claim_ids), lane, epoch, owner, max(row.lost for row in rows), messages)

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> Mapping[int, Settled]:
        now = now or utcnow()
        return {settlement.claim.id: self._settle(settlement, now) for settlement in settlements}

    def _settle(self, settlement: Settlement, now: datetime) -> Settled:
        claim = settlement.claim
        if self._claims.pop(claim.id, None) is None:
            return "already" if self._lanes[claim.lane].epoch == claim.epoch else "lost"
        for claimed in claim.messages:
            row = self._rows[claimed.seq]
            if row.settled_at is None:
                self._record(row, settlement.verdicts.get(claimed.seq, Unsent()), now)
        return "settled"

    def _record(self, row: Row, verdict: Verdict, now: datetime) -> None:
        """Write a verdict into a row: the one table of what each does."""
        match verdict:
            case Unsent():
                return
            case Published():
                self._close(row, "published", now)
                row.attempts, row.tried_at, row.code, row.error = row.attempts + 1, now, None, None
            case Expired():
                self._close(row, "expired", now)
            case Buried():
                self._close(row, "dead", now)
                row.attempts, row.tried_at, row.parks = (
                    row.attempts + 1,
                    now,
                    verdict.park and row.message.key is not None,
                )
                row.code, row.error = kept_code(verdict.code), kept_error(verdict.error)
            case Retry():
                row.attempts, row.tried_at = row.attempts + verdict.spent, now
                row.due_at = now + verdict.after
                row.code, row.error = kept_code(verdict.code), kept_error(verdict.error)

    def _close(self, row: Row, outcome: Status, now: datetime) -> None:
        row.outcome, row.settled_at, row.lost = outcome, now, 0

    async def peek(self, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        return any(self._line(lane, now or utcnow()) for lane in lanes)

    async def watch(self, woken: Callable[[], None]) -> None:
        self._watchers.append(woken)
        woken()
        try:
            await asyncio.Event().wait()
        finally:
            self._watchers.remove(woken)

    def _wake(self) -> None:
        for woken in self._watchers:
            woken()

    # ── ops ──

    async def counts(self, *, now: datetime | None = None) -> Counts:
        now = now or utcnow()
        by_status: defaultdict[Status, int] = defaultdict(int)
        for row in self._rows.values():
            by_status[self._status(row)] += 1
        waiting = [row.created_at for row in self._rows.values() if row.settled_at is None and row.due(now)]
        lag = max(now - min(waiting), timedelta(0)) if waiting else timedelta(0)
        parked = sum(self._record_of(row).parked for row in self._rows.values() if row.settled_at is None)
        return Counts(by_status=by_status, lag=lag, parked=parked)

    async def find(self, query: Query) -> Sequence[Record]:
        found = [self._record_of(row) for row in self._matching(query)]
        return found if query.limit is None else found[max(len(found) - query.limit, 0) :]

    async def ids_between(self, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
        return sorted(row.message.id for row in self._rows.values() if first <= row.message.id <= last)[:limit]

    async def requeue(self, query: Query, *, told: Progress | None = None) -> int:
        def again(row: Row) -> None:
            row.settled_at = row.outcome = row.due_at = row.code = row.error = None
            row.attempts, row.lost, row.parks = 0, 0, False

        return await self._to_each(query, ("dead", "failed"), again, told)

    async def discard(self, query: Query, *, now: datetime | None = None, told: Progress | None = None) -> int:
        def close(row: Row) -> None:
            self._close(row, "discarded", now or utcnow())
            row.parks = False

        return await self._to_each(query, ("dead", "failed", "pending"), close, told)

    async def _to_each(
        self, query: Query, statuses: Sequence[Status], act: Callable[[Row], None], told: Progress | None
    ) -> int:
        async def some(chunk: Chunk) -> Done:
            able = (row for row in self._matching(query) if chunk.after < row.seq <= chunk.top)
            rows = [row for row in able if self._status(row) in statuses][: chunk.size]
            for row in rows:
                act(row)
            self._wake()
            return Done(len(rows), end_of([row.seq for row in rows], chunk))

        return await in_chunks(max(self._rows, default=0), some, told)

    def _matching(self, query: Query) -> Iterator[Row]:
        ids: set[UUID] = set(query.ids)
        for _, row in sorted(self._rows.items()):
            if (
                (not ids or row.message.id in ids)
                and query.status in (None, self._status(row))
                and query.type in (None, row.message.type)
                and query.key in (None, row.message.key)
                and (query.since is None or row.created_at >= query.since)
                and (query.before is None or row.seq < query.before)
            ):
                yield row

    def _status(self, row: Row) -> Status:
        if row.outcome is not None:
            return row.outcome
        if self._in_flight(row):
            return "sending"
        return "failed" if row.attempts else "pending"

    def _in_flight(self, row: Row) -> tuple[Claim, datetime] | None:
        held = (held for held in self._claims.values() if held[0].lane == row.lane)
        return next((entry for entry in held if any(claimed.seq == row.seq for claimed in entry[0].messages)), None)

    def _record_of(self, row: Row) -> Record:
        flight = self._in_flight(row) if row.outcome is None else None
        key = row.message.key
        parked = key is not None and any(other.parks for other in self._rows.values() if other.message.key == key)
        return Record(
            seq=row.seq,
            status=self._status(row),
            attempts=row.attempts,
            lane=row.lane,
            created_at=row.created_at,
            updated_at=row.settled_at or row.tried_at or row.created_at,
            message=row.message,
            owner=flight[0].owner if flight else None,
            locked_at=flight[1] if flight else None,
            due_at=row.due_at,
            settled_at=row.settled_at,
            digest=digest(row.message) if row.message.idempotency_key else None,
            last_error_code=row.code,
            last_error=row.error,
            parked=row.parks or (parked and row.settled_at is None),
        )


def _expired(row: Row, now: datetime) -> bool:
    return row.message.expires_at is not None and row.message.expires_at <= now


def replace_not_before(message: Message) -> Message:
    """The message as a store gives it back: when it may go is the row's `due_at` from then on."""
    return message.replace(not_before=None) if message.not_before is not None else message
