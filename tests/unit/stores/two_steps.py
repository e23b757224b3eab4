"""As if the tables had come in two migrations: what several steps need is tested with these."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from postroom.stores.sql import migrations
from postroom.stores.sql.migrations import Step, steps

CUT = "-- What was received."
"""Where the first script goes over to the inbox."""
NAMES = ["0001_outbox", "0002_inbox"]


def two_steps(package: str) -> Sequence[Step]:
    """The first script of a store, cut at the inbox's tables."""
    outbox, cut, inbox = steps(package)[0].sql.partition(CUT)
    assert cut, f"{CUT!r} is not in the first script of {package}"
    return [
        Step(number, name, sql) for number, (name, sql) in enumerate(zip(NAMES, (outbox, cut + inbox), strict=True), 1)
    ]


def in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this Postroom these two migrations, in place of its own."""
    monkeypatch.setattr(migrations, "steps", two_steps)
    for part in ("inbox", "inbox_dead"):
        monkeypatch.setitem(migrations.SINCE, part, 2)
