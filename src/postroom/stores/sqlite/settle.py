"""What each verdict writes, and the care for the keys it touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import assert_never

from postroom.contracts.outbox import Buried, Expired, Published, Retry, Unsent, Verdict
from postroom.stores.rows import kept_code, kept_error
from postroom.stores.sql.times import microseconds
from postroom.stores.sqlite.statements import Statements, many


class Verdicts:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements) -> None:
        self._run = statements.run

    def publish(self, connection: sqlite3.Connection, seqs: Collection[int], now: datetime) -> None:
        """The happy path, many at once."""
        self._run(connection, "publish", seqs=many(seqs), now=microseconds(now))

    def record(
        self, connection: sqlite3.Connection, seq: int, verdict: Verdict, now: datetime, *, lost: bool = False
    ) -> None:
        """Write one verdict, on a row that is still open."""
        at = microseconds(now)
        match verdict:
            case Unsent():
                return
            case Published():
                self.publish(connection, [seq], now)
            case Expired():
                self._run(connection, "expire", seq=seq, now=at)
            case Buried(code, error, park):
                why = {"code": kept_code(code), "error": kept_error(error)}
                self._run(connection, "bury", seq=seq, now=at, park=park, **why)
            case Retry(after, code, error, spent):
                self._run(
                    connection,
                    "retry",
                    seq=seq,
                    now=at,
                    due_at=microseconds(now + after),
                    code=kept_code(code),
                    error=kept_error(error),
                    spent=spent,
                    lost=int(lost),
                )
            case _:
                assert_never(verdict)

    def look_after(self, connection: sqlite3.Connection, keys: Collection[str]) -> None:
        """Hold the keys that must wait, until the right moment; let go of those that need not."""
        if keys:
            self._run(connection, "free_keys", keys=many(keys))
            self._run(connection, "hold_keys", keys=many(keys))
