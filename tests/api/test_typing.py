"""What mypy says of a `put` whose `await` was forgotten: the message would be lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
FORGOTTEN = """
import sqlite3
import aiosqlite
from sqlalchemy.ext.asyncio import AsyncSession
from postroom import Message, Outbox


async def pay(outbox: Outbox, plain: sqlite3.Connection, connection: aiosqlite.Connection, session: AsyncSession) -> None:
    outbox.put(plain, Message("order.paid"))
    await outbox.put(connection, Message("order.paid"))
    await outbox.put_many(session, [Message("order.paid")])
    outbox.put(connection, Message("order.paid"))
    outbox.put_many(session, [Message("order.paid")])
"""


def test_mypy_finds_a_forgotten_await(tmp_path: Path) -> None:
    (tmp_path / "pay.py").write_text(FORGOTTEN)
    options = ["--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=silent", "--no-error-summary"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "pay.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert [line.partition(": error:")[0] for line in found] == ["pay.py:12", "pay.py:13"], run.stdout + run.stderr
    assert all("[unused-coroutine]" in line for line in found)
