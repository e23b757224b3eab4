"""The story on a terminal: a table of messages that move, and below it what happens."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from postroom.cli.demo.shop import CREDIT, ORDERS
from postroom.cli.demo.stage import Line, order_of, why
from postroom.store import Record, Status

PACE_SECONDS = 0.75
LINES = 9
"""How many of the last things that happened are shown."""
ROWS = sum(order.amount <= CREDIT for order in ORDERS)
TRACK = "PUT ── SENDING ── PUBLISHED"
PLACES = (0, TRACK.index("SENDING"), TRACK.index("PUBLISHED"))
LOOKS: dict[Status, tuple[int, str, str]] = {
    "pending": (0, "●", "bold"),
    "sending": (1, "●", "bold cyan"),
    "failed": (1, "◌", "yellow"),
    "dead": (1, "✗", "bold red"),
    "published": (2, "●", "green"),
    "expired": (1, "✗", "yellow"),
    "discarded": (0, "✗", "yellow"),
}
"""How far a message has come, and how that looks."""


class LiveStage:
    """See `postroom.cli.demo.stage.Stage`."""

    pace = PACE_SECONDS

    def __init__(self) -> None:
        console = Console(file=sys.stdout, highlight=False)
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._title = ""
        self._lines: deque[Line] = deque(maxlen=LINES)
        self._records: Sequence[Record] = ()

    def open(self) -> AbstractContextManager[object]:
        return self._live

    def scene(self, title: str) -> None:
        self._title = title
        self._draw()

    def tell(self, line: Line) -> None:
        self._lines.append(line)
        self._draw()

    def outbox(self, records: Sequence[Record]) -> None:
        self._records = records
        self._draw()

    def pause(self, records: Sequence[Record]) -> None:
        self.outbox(records)

    def _draw(self) -> None:
        self._live.update(picture(self._title, self._records, self._lines), refresh=True)


def picture(title: str, records: Sequence[Record], lines: Sequence[Line]) -> RenderableType:
    """The whole screen, of the same height from the first moment to the last."""
    whole = Table.grid()
    for part in (Text(title, style="bold"), "", _outbox(records), "", _log(lines)):
        whole.add_row(part)
    return Padding(whole, (1, 0, 0, 0))


def _outbox(records: Sequence[Record]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("#", justify="right")
    table.add_column("CUSTOMER", width=8)
    table.add_column("AMOUNT", justify="right", width=6)
    table.add_column(TRACK, width=len(TRACK))
    table.add_column("TRIES", justify="right", width=5)
    table.add_column("WHY", width=len("waits for the dead one"), no_wrap=True)
    for record in records:
        order = order_of(record)
        style = LOOKS[record.status][2]
        reason = Text(why(record, records), style="dim" if record.settled_at is None else style)
        table.add_row(
            str(record.seq), order.customer, f"{order.amount:,}", _track(record), str(record.attempts), reason
        )
    for _ in range(ROWS - len(records)):
        table.add_row("")
    return table


def _track(record: Record) -> Text:
    """A line from put to where the message is now."""
    place, mark, style = LOOKS[record.status]
    return Text("─" * PLACES[place] + mark, style=style)


def _log(lines: Sequence[Line]) -> Table:
    table = Table.grid()
    table.add_column(no_wrap=True, overflow="ellipsis")
    for line in lines:
        table.add_row(Text(str(line), style=line.style))
    for _ in range(LINES - len(lines)):
        table.add_row("")
    return table
