"""Messages on their way out: put, claim, settle."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from math import inf

from postroom.clock import utcnow
from postroom.config.tables import TableNames
from postroom.contracts.outbox import Claim, Claimed, Published, Settled, Settlement, per_lane
from postroom.handles.sqlite import SqliteHandle
from postroom.message import Message
from postroom.stores.rows import message_of
from postroom.stores.selection import Choice, Seen, company, fair, look, look_behind
from postroom.stores.sql.times import microseconds, moment
from postroom.stores.sqlite.connections import Writer
from postroom.stores.sqlite.settle import Verdicts
from postroom.stores.sqlite.statements import Part, Statements, in_transaction, many, reading
from postroom.stores.sqlite.watch import watch
from postroom.stores.transaction import OwnTransaction, handle_of

WALK_MAX = 16_384
"""How far one claim walks along a line that is full of messages that have to wait."""


class SQLiteOutbox(Part):
    """See `postroom.contracts.outbox` for what each method promises."""

    def __init__(self, writer: Writer, statements: Statements) -> None:
        super().__init__(writer, statements)
        self._verdicts = Verdicts(statements)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[OwnTransaction]:
        async def write(messages: Sequence[Message], tables: TableNames) -> None:
            await self.writer.step(lambda connection: SqliteHandle(connection).write(messages, tables))

        async with self.writer.transaction(), handle_of(write) as handle:
            yield handle

    @in_transaction
    def put(self, connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
        SqliteHandle(connection).write(messages, self.writer.tables)

    @in_transaction
    def claim(
        self,
        connection: sqlite3.Connection,
        owner: str,
        lanes: Mapping[int, int],
        *,
        limit: int,
        doubtful: Collection[int] = (),
        alone: bool = False,
        now: datetime | None = None,
    ) -> Sequence[Claim]:
        now = now or utcnow()
        self._run(connection, "give_hash")
        for lane in lanes.keys() & set(doubtful):
            self._run(connection, "drop_orphans", lane=lane, owner=owner, epoch=lanes[lane])
        if limit < 1:
            return []
        free = [lane for lane in lanes if self._free(connection, owner, lane, lanes[lane])]
        want = per_lane(limit, len(free))
        lines = {lane: self._line(connection, lane, want, now) for lane in free}
        held = {key for line in lines.values() for key in line[1]}
        chosen = fair({lane: line[0] for lane, line in lines.items() if line[0]}, limit)
        return [
            self._claimed(connection, owner, lane, lanes[lane], seen, held, now, alone) for lane, seen in chosen.items()
        ]

    def _free(self, connection: sqlite3.Connection, owner: str, lane: int, epoch: int) -> bool:
        return self._run(connection, "free_lane", owner=owner, lane=lane, epoch=epoch).fetchone() is not None

    def _line(
        self, connection: sqlite3.Connection, lane: int, want: int, now: datetime
    ) -> tuple[Sequence[Seen], set[str]]:
        """What may go in this lane, and which of its keys come out of a wait."""
        at = microseconds(now)
        freed: set[str] = set()
        while True:
            ceiling = self._lift(connection, lane, want, at)
            choice = self._walk(connection, lane, want, at)
            moved, keys = self._look_behind(connection, lane, want, at, choice)
            freed |= keys
            line = company(sorted(seen for seen in choice.ready if seen.seq <= ceiling))
            if line or (not moved and ceiling == inf):
                return line, freed

    def _look_behind(
        self, connection: sqlite3.Connection, lane: int, want: int, at: int, choice: Choice
    ) -> tuple[int, set[str]]:
        """Add what waited behind keys whose time has come; how many turned out to be for later, and which keys."""
        keys = {key for (key,) in self._run(connection, "due_holds", lane=lane, now=at, limit=want)}
        for key in keys:
            waiting = self._run(connection, "behind", key=key, now=at, limit=want)
            look_behind(map(Seen._make, waiting), choice)
        moved = len(choice.later)
        self._shelve(connection, choice)
        self._verdicts.look_after(connection, keys)
        return moved, keys

    def _lift(self, connection: sqlite3.Connection, lane: int, want: int, at: int) -> float:
        """Put what is due now back in the line. When more is due than was lifted, nothing behind the last one may go:
        it could be a later message of a key whose earlier one is still on the shelf."""
        lifted = [seq for (seq,) in self._run(connection, "lift_due", lane=lane, now=at, limit=want)]
        return max(lifted) if len(lifted) == want else inf

    def _walk(self, connection: sqlite3.Connection, lane: int, want: int, at: int) -> Choice:
        """Along the line until enough may go, taking out what has to wait: the next walk does not meet it again."""
        reach = 2 * want
        while True:
            line = [Seen._make(row) for row in self._run(connection, "walk", lane=lane, now=at, limit=reach)]
            choice = Choice()
            look(line, choice)
            waiting = len(choice.behind) + len(choice.later)
            self._shelve(connection, choice)
            if not waiting or len(choice.ready) >= want or len(line) < reach:
                return choice
            reach = min(4 * reach, WALK_MAX)

    def _shelve(self, connection: sqlite3.Connection, choice: Choice) -> None:
        for shelf, seqs in (("key", choice.behind), ("time", choice.later)):
            if seqs:
                self._run(connection, "shelve", shelf=shelf, seqs=many(seqs))
        choice.behind, choice.later = [], []

    def _claimed(
        self,
        connection: sqlite3.Connection,
        owner: str,
        lane: int,
        epoch: int,
        chosen: Sequence[Seen],
        held: Collection[str],
        now: datetime,
        alone: bool,
    ) -> Claim:
        seqs, at = many(seen.seq for seen in chosen), microseconds(now)
        row = {"lane": lane, "epoch": epoch, "owner": owner, "seqs": seqs, "now": at, "alone": alone}
        (claim_id,) = self._run(connection, "claim", **row).fetchone()
        rows = self._run(connection, "claimed", seqs=seqs, now=at)
        messages = [
            Claimed(seq, attempts, bool(expired), message_of(*(*columns, moment(time), moment(expires_at))))
            for seq, attempts, expired, *columns, time, expires_at in rows
        ]
        keys = frozenset(seen.key for seen in chosen if seen.key is not None and seen.key in held)
        return Claim(claim_id, lane, epoch, owner, max(seen.lost for seen in chosen), messages, keys)

    @in_transaction
    def settle(
        self, connection: sqlite3.Connection, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> Mapping[int, Settled]:
        at = now or utcnow()
        return {settlement.claim.id: self._settle(connection, settlement, at) for settlement in settlements}

    def _settle(self, connection: sqlite3.Connection, settlement: Settlement, now: datetime) -> Settled:
        claim = settlement.claim
        if not self._run(connection, "fence", id=claim.id).rowcount:
            mine = self._run(connection, "is_mine", lane=claim.lane, epoch=claim.epoch).fetchone()
            return "already" if mine else "lost"
        verdicts = settlement.own_verdicts
        published = [seq for seq, verdict in verdicts.items() if isinstance(verdict, Published)]
        self._verdicts.publish(connection, published, now)
        for seq, verdict in sorted(verdicts.items()):
            if not isinstance(verdict, Published):
                self._verdicts.record(connection, seq, verdict, now)
        self._verdicts.look_after(connection, settlement.stopped_keys | claim.held)
        return "settled"

    @reading
    def peek(self, connection: sqlite3.Connection, lanes: Collection[int], *, now: datetime | None = None) -> bool:
        (found,) = self._run(connection, "peek", lanes=many(lanes), now=microseconds(now or utcnow())).fetchone()
        return bool(found)

    async def watch(self, woken: Callable[[], None]) -> None:
        await watch(self.writer.path, woken)
