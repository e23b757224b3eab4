"""What each verdict writes, and the care for the keys it touched."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, assert_never

from postroom.contracts.outbox import Buried, Expired, Published, Retry, Unsent, Verdict
from postroom.stores.mysql.connections import Connection
from postroom.stores.mysql.statements import Statements, listed, many, text_of
from postroom.stores.sql.texts import kept_code, kept_error
from postroom.stores.sql.times import MICROSECOND

AT_ONCE = "1000-01-01"
"""The end of a wait that is over."""


class Verdicts:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements) -> None:
        self._run, self._rows, self._run_many = statements.run, statements.rows, statements.run_many

    async def publish(self, connection: Connection, seqs: Collection[int], now: datetime | None) -> None:
        """The happy path, many at once."""
        await self._run(connection, "publish", seqs=many(seqs), now=text_of(now))

    async def record(
        self, connection: Connection, verdicts: Mapping[int, Verdict], now: datetime | None, *, lost: bool = False
    ) -> None:
        """Write the verdicts, each kind in one statement, on rows that are still open."""
        seqs: defaultdict[str, list[int]] = defaultdict(list)
        rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for seq, verdict in sorted(verdicts.items()):
            match verdict:
                case Unsent():
                    pass
                case Published():
                    seqs["publish"].append(seq)
                case Expired():
                    seqs["expire"].append(seq)
                case Buried(code, error, park):
                    rows["bury"].append({"seq": seq, "park": int(park)} | _why(code, error))
                case Retry(after, code, error, spent):
                    row = {"seq": seq, "wait": after // MICROSECOND, "spent": int(spent)}
                    rows["retry"].append(row | _why(code, error))
                case _:
                    assert_never(verdict)
        for name, plain in seqs.items():
            await self._run(connection, name, seqs=many(plain), now=text_of(now))
        if rows["bury"]:
            await self._run(connection, "bury", verdicts=json.dumps(rows["bury"]), now=text_of(now))
        if rows["retry"]:
            await self._run(connection, "retry", verdicts=json.dumps(rows["retry"]), now=text_of(now), lost=int(lost))

    async def look_after(self, connection: Connection, keys: Collection[str]) -> None:
        """Hold the keys that must wait, until the right moment; let go of those that need not. Under the lanes' locks."""
        if not keys:
            return
        found = await self._rows(connection, "waiting", keys=many(sorted(keys)))
        holds = [
            {"key": key, "lane": lane, "until": None if parks else text_of(until) or AT_ONCE}
            for key, lane, parks, until in found
        ]
        if over := set(keys) - {hold["key"] for hold in holds}:
            await self._run(connection, "free_keys", listed=listed(sorted(over)))
        if holds:
            await self._run_many(connection, "hold_keys", sorted(holds, key=lambda hold: str(hold["key"])))


def _why(code: str, error: str) -> dict[str, str]:
    return {"code": kept_code(code), "error": kept_error(error)}
