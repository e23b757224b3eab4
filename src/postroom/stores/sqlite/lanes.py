"""Who may send what: take, renew, release."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from postroom.clock import utcnow
from postroom.contracts.lanes import Lane, OnLeaseLost, RelayInfo
from postroom.stores.selection import LostRow, after_a_crash
from postroom.stores.sql.times import microseconds, moment
from postroom.stores.sqlite.connections import Writer
from postroom.stores.sqlite.settle import Verdicts
from postroom.stores.sqlite.statements import Part, Statements, in_transaction, many, reading


class SQLiteLanes(Part):
    """See `postroom.contracts.lanes` for what each method promises."""

    def __init__(self, writer: Writer, statements: Statements) -> None:
        super().__init__(writer, statements)
        self._verdicts = Verdicts(statements)

    @in_transaction
    def join(self, connection: sqlite3.Connection, relay: RelayInfo, *, now: datetime | None = None) -> None:
        self._run(
            connection,
            "join",
            owner=relay.owner,
            name=relay.name,
            host=relay.host,
            pid=relay.pid,
            version=relay.version,
            process=relay.process,
            now=microseconds(now or utcnow()),
        )

    @in_transaction
    def leave(self, connection: sqlite3.Connection, owner: str) -> None:
        self._run(connection, "leave", owner=owner)

    @reading
    def relays(self, connection: sqlite3.Connection) -> Sequence[RelayInfo]:
        rows = self._run(connection, "relays")
        return [
            RelayInfo(
                owner=owner, name=name, host=host, pid=pid, version=version, process=process, seen_at=moment(seen)
            )
            for owner, name, host, pid, version, process, seen in rows
        ]

    @reading
    def all(self, connection: sqlite3.Connection) -> Sequence[Lane]:
        return [_lane(*row) for row in self._run(connection, "lanes")]

    @in_transaction
    def take(
        self,
        connection: sqlite3.Connection,
        owner: str,
        *,
        limit: int,
        lease: timedelta,
        lost: OnLeaseLost,
        gone: Collection[str] = (),
        now: datetime | None = None,
    ) -> Sequence[Lane]:
        now = now or utcnow()
        taken = self._run(
            connection,
            "take",
            owner=owner,
            limit=limit,
            lease_until=microseconds(now + lease),
            gone=many(gone),
            now=microseconds(now),
        ).fetchall()
        for lane, *_ in taken:
            self._let_go(connection, lane, lost, now)
        return sorted((_lane(*row) for row in taken), key=lambda lane: lane.lane)

    def _let_go(self, connection: sqlite3.Connection, lane: int, lost: OnLeaseLost, now: datetime) -> None:
        """Count an attempt for what an earlier owner had in flight here, and drop its claim (R6)."""
        for seqs, was_alone in self._run(connection, "let_go", lane=lane).fetchall():
            rows = [LostRow._make(row) for row in self._run(connection, "lost", seqs=seqs)]
            verdicts, keys = after_a_crash(rows, lost, {row.seq for row in rows if was_alone})
            for seq, verdict in verdicts.items():
                self._verdicts.record(connection, seq, verdict, now, lost=True)
            self._verdicts.look_after(connection, keys)

    @in_transaction
    def renew(
        self,
        connection: sqlite3.Connection,
        owner: str,
        lanes: Mapping[int, int],
        *,
        lease: timedelta,
        now: datetime | None = None,
    ) -> frozenset[int]:
        until, held = microseconds((now or utcnow()) + lease), json.dumps(dict(lanes))
        rows = self._run(connection, "renew", lanes=held, owner=owner, lease_until=until).fetchall()
        return frozenset(lane for (lane,) in rows)

    @in_transaction
    def release(self, connection: sqlite3.Connection, owner: str, lanes: Mapping[int, int]) -> frozenset[int]:
        return frozenset(
            lane
            for lane, epoch in lanes.items()
            if self._run(connection, "release", lane=lane, owner=owner, epoch=epoch).rowcount
        )


def _lane(lane: int, epoch: int, owner: str | None, lease_until: int | None) -> Lane:
    return Lane(lane, epoch, owner, moment(lease_until))
