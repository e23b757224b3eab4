"""The view of a relay on a terminal: a few lines that stay where they are, and are gone when it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from postroom.cli.output import printable, rough
from postroom.cli.progress import Tally
from postroom.clock import monotonic
from postroom.contracts.store import Store
from postroom.errors import StoreError
from postroom.events import Event
from postroom.ops.status import StatusSnapshot, look

REFRESH_SECONDS = 0.25
ASK_SECONDS = 1.0
"""How often the store is asked what is open, at most."""
ASK_SHARE = 20
"""Counting a large table takes its time: the pause is so many times as long as the answer took."""
DOTS = {"running": "green", "draining": "green", "stopping": "cyan"}


@dataclass(slots=True)
class Seen:
    """What the store said last."""

    snapshot: StatusSnapshot | None = None
    away: bool = False


class LiveView:
    """See `postroom.cli.progress.View`."""

    def __init__(self, tally: Tally, store: Store) -> None:
        self._tally, self._store = tally, store
        self._seen = Seen()

    def __call__(self, event: Event) -> None:
        """Nothing to do: the tally is looked at four times a second."""

    async def run(self) -> None:
        """Draw it again and again; what is printed meanwhile appears above it."""
        console = Console(file=sys.stdout, highlight=False)
        asking = asyncio.create_task(self._ask())
        try:
            with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
                while True:
                    live.update(draw(self._tally, self._seen), refresh=True)
                    await asyncio.sleep(REFRESH_SECONDS)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self) -> None:
        while True:
            begin = monotonic()
            try:
                self._seen.snapshot = await look(self._store)
            except StoreError:
                self._seen.away = True
            else:
                self._seen.away = False
            await asyncio.sleep(max(ASK_SECONDS, ASK_SHARE * (monotonic() - begin)))


def draw(tally: Tally, seen: Seen) -> RenderableType:
    """All that is known, in lines of a label, a number and a remark."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
    for label, number, remark, style in _rows(tally, seen):
        table.add_row(Text(label), Text(f"{number:,}", style=style if number else ""), Text(printable(remark)))
    whole = Table.grid()
    whole.add_column(no_wrap=True, overflow="ellipsis")
    whole.add_row(_headline(tally, seen))
    whole.add_row(table)
    return whole


def _headline(tally: Tally, seen: Seen) -> Text:
    held = f"{len(tally.totals.lanes):,}" + ("" if seen.snapshot is None else f" of {len(seen.snapshot.lanes):,}")
    line = Text.assemble(("● ", DOTS.get(tally.state, "yellow")), (tally.state, "bold"))
    for name, paused in tally.totals.paused.items():
        state = "shut" if paused.delay is None else "away"
        line.append(printable(f" ({name} is {state}: {paused.code})"), style="yellow")
    return line.append(f"   {held} lanes   {rough(timedelta(seconds=int(tally.seconds)))}", style="dim")


def _rows(tally: Tally, seen: Seen) -> Iterator[tuple[str, int, str, str]]:
    totals, (now, overall) = tally.totals, tally.rates
    yield "published", totals.published, f"{now:,.0f}/s now, {overall:,.0f}/s overall", "green"
    failure = totals.last_failure
    yield "failed tries", totals.failed, "" if failure is None else f"last: {failure.code}, {failure.type}", "yellow"
    yield "dead", totals.dead, "see `postroom list --status dead`" if totals.dead else "", "red"
    if totals.expired:
        yield "expired", totals.expired, "their time was over", "yellow"
    yield "open", 0 if seen.snapshot is None else seen.snapshot.open, _waiting(seen), "bold"


def _waiting(seen: Seen) -> str:
    said = []
    if seen.snapshot is not None:
        if seen.snapshot.lag:
            said.append(f"the oldest has been waiting for {rough(seen.snapshot.lag)}")
        if parked := seen.snapshot.counts.parked:
            said.append(f"{parked:,} behind a dead one")
    if seen.away:
        said.append("the store does not answer")
    return ", ".join(said)
