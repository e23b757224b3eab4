"""The command line, run as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import postroom


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one command."""

    code: int
    out: str
    err: str

    def objects(self) -> list[Any]:
        """The lines of stdout, each read as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def refuses(self, *parts: str, code: int) -> None:
        """Assert that it said one sentence on stderr, with these parts, and nothing else at all."""
        assert self.code == code, self
        assert self.out == ""
        assert len(self.err.splitlines()) == 1, self.err
        assert self.err.startswith("error: ")
        assert self.err.rstrip().endswith((".", "?")), self.err
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with a SQLite file `shop.db`, and a `postroom` that knows it by POSTROOM_STORE."""

    folder: Path

    def __call__(
        self, *arguments: str, stdin: bytes | None = None, store: str | None = "sqlite:///shop.db", **env: str
    ) -> Outcome:
        done = postroom(*arguments, cwd=self.folder, env=self.environment(store, **env), given=stdin or b"")
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def environment(self, store: str | None = "sqlite:///shop.db", **env: str) -> dict[str, str]:
        """This process's environment without its POSTROOM_ variables and its terminal, with these."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
        known.pop("COLUMNS", None)
        return known | ({} if store is None else {"POSTROOM_STORE": store}) | env

    def execute(self, sql: str, *parameters: object) -> list[Any]:
        """Run a statement on shop.db, as a stranger would."""
        connection = sqlite3.connect(self.folder / "shop.db")
        try:
            rows = connection.execute(sql, parameters).fetchall()
            connection.commit()
        finally:
            connection.close()
        return rows

    @property
    def count(self) -> int:
        """How many messages are in shop.db."""
        return int(self.execute("SELECT count(*) FROM outbox")[0][0])
