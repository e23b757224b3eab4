"""What each verdict writes, and the care for the keys it touched."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, assert_never

from postroom.contracts.outbox import Buried, Expired, Published, Retry, Unsent, Verdict
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.statements import Statements
from postroom.stores.rows import kept_code, kept_error


class Verdicts:
    """Each method runs inside the transaction it is given."""

    def __init__(self, statements: Statements) -> None:
        self._run = statements.run

    async def record(
        self, connection: Connection, verdicts: Mapping[int, Verdict], now: datetime | None, *, lost: bool = False
    ) -> None:
        """Write the verdicts, each kind in one statement, on rows that are still open."""
        seqs: defaultdict[str, list[int]] = defaultdict(list)
        rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for seq, verdict in verdicts.items():
            match verdict:
                case Unsent():
                    pass
                case Published():
                    seqs["publish"].append(seq)
                case Expired():
                    seqs["expire"].append(seq)
                case Buried(code, error, park):
                    rows["bury"].append({"seq": seq, "park": park} | _why(code, error))
                case Retry(after, code, error, spent):
                    row = {"seq": seq, "after": after.total_seconds(), "spent": int(spent)}
                    rows["retry"].append(row | _why(code, error))
                case _:
                    assert_never(verdict)
        for name, plain in seqs.items():
            await self._run(connection, name, seqs=plain, now=now)
        if rows["bury"]:
            await self._run(connection, "bury", verdicts=json.dumps(rows["bury"]), now=now)
        if rows["retry"]:
            await self._run(connection, "retry", verdicts=json.dumps(rows["retry"]), now=now, lost=int(lost))

    async def look_after(self, connection: Connection, keys: Collection[str]) -> None:
        """Hold the keys that must wait, until the right moment; let go of those that need not."""
        if keys:
            # In order: two transactions that look after the same keys must not wait for each other crosswise.
            await self._run(connection, "free_keys", keys=sorted(keys))
            await self._run(connection, "hold_keys", keys=sorted(keys))


def _why(code: str, error: str) -> dict[str, str]:
    return {"code": kept_code(code), "error": kept_error(error)}
