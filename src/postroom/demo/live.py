"""The story on a terminal: a table of messages that move, the fault that strikes, and below it what happens."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from postroom.contracts.ops import Record, Status
from postroom.demo.books import Books, Fact
from postroom.demo.shop import is_told, order_of
from postroom.demo.stage import Line, Stage, handlers_of, why

PACE_SECONDS = 0.55
ROWS, LINES, FRAME = 13, 12, 6
"""How many messages and last lines are shown at most, and how many lines there are around them."""
LINES_MIN, ROWS_MIN = 3, 3
STOPS = ("PUT", "SENDING", "PUBLISHED", "HANDLED BY")
NARROW, GAP_MAX = 79, 12
"""How many columns the table needs, and how far the stops are apart at most where there are more."""
NAMES = len("billing shipping")
WHY = 17
LOOKS: dict[Status, tuple[int, str, str]] = {
    "pending": (0, "●", "bold"),
    "sending": (1, "●", "bold cyan"),
    "failed": (1, "◌", "yellow"),
    "dead": (1, "✗", "bold red"),
    "published": (2, "●", "green"),
    "expired": (1, "✗", "yellow"),
    "discarded": (0, "✗", "yellow"),
}
"""How far a message has come, and how that looks. Colours by name: the terminal's own theme decides what they are."""


class Banner(NamedTuple):
    """The fault that strikes, or how it was fixed."""

    text: str = ""
    style: str = ""


class LiveStage(Stage):
    """Draws it again whenever it looks different. See `Stage` for what each method tells."""

    pace = PACE_SECONDS

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._title, self._banner = "", Banner()
        self._lines: deque[Line] = deque(maxlen=LINES)
        self._drawn: list[list[Segment]] = []

    def open(self) -> AbstractContextManager[object]:
        return self._live

    def scene(self, title: str) -> None:
        self._title, self._banner = title, Banner()

    def strike(self, fault: str, now: str = "") -> None:
        self._banner = Banner(f" ✗ {fault}{now and f': {now}'} ", "bold red reverse")

    def fix(self, how: str) -> None:
        self._banner = Banner(f" ✓ {how} ", "bold green reverse")

    def tell(self, line: Line) -> None:
        self._lines.append(line)

    def show(self, books: Books) -> None:
        """Draw all of it, unless it looks as it did: a terminal that is redrawn flickers."""
        size = self._console.size
        whole = picture(self._title, self._banner, books, self._lines, self.fallen, size.width, size.height)
        drawn = self._console.render_lines(whole)
        if drawn != self._drawn:
            self._drawn = drawn
            self._live.update(whole, refresh=True)

    def dwell(self, books: Books) -> None:
        self.show(books)

    def prove(self, facts: Sequence[Fact]) -> None:
        self._console.print()
        self._console.print(Text("What the stores say in the end", style="bold"))
        self._console.print(proof_table(facts))


# ── the picture: pure, of the same height from the first moment to the last ──


def picture(
    title: str,
    banner: Banner,
    books: Books | None,
    lines: Sequence[Line],
    fallen: Collection[str],
    width: int,
    height: int,
) -> RenderableType:
    """The whole screen, of the same height from the first moment to the last."""
    rows = min(ROWS, max(height - FRAME - LINES_MIN, ROWS_MIN))
    count = min(LINES, max(height - FRAME - rows, LINES_MIN))
    whole = Table.grid()
    whole.add_column(no_wrap=True, overflow="ellipsis", max_width=width)
    flow = _flow(books, rows, width, fallen)
    for part in (Text(title, style="bold"), Text(banner.text, style=banner.style), "", flow, "", _log(lines, count)):
        whole.add_row(part)
    return whole


def _flow(books: Books | None, rows: int, width: int, fallen: Collection[str]) -> Table:
    gap = min(max((width - NARROW) // (len(STOPS) - 1), 0) + 1, GAP_MAX)
    track = f" {'─' * gap} ".join(STOPS)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("#", justify="right", width=2)
    table.add_column("CUSTOMER", width=8)
    table.add_column("EUR", justify="right", width=4)
    table.add_column(track, width=track.index(STOPS[3]) + NAMES, no_wrap=True)
    table.add_column("", width=WHY, no_wrap=True)
    records = list(books.records)[-rows:] if books else []
    for record in records:
        order, style = order_of(record.message), LOOKS[record.status][2]
        about = Text(why(record, books, fallen) if books else "", style=style if record.settled_at else "yellow")
        amount = "hook" if is_told(record.message) else f"{order.amount:,}"
        moved = _track(record, track, handlers_of(record, books) if books else [])
        table.add_row(str(order.number), order.customer, amount, moved, about)
    for _ in range(rows - len(records)):
        table.add_row("")
    return table


def _track(record: Record, track: str, handlers: Sequence[str]) -> Text:
    """A line from put to where the message is now, and who has handled it."""
    place, mark, style = LOOKS[record.status]
    line = Text("─" * track.index(STOPS[place]) + mark, style=style)
    if handlers:
        line.append("─" * (track.index(STOPS[3]) - 1 - len(line)) + " ", style="green")
        line.append(" ".join(handlers), style="bold green")
    return line


def _log(lines: Sequence[Line], count: int) -> Table:
    table = Table.grid()
    table.add_column(no_wrap=True, overflow="ellipsis")
    last = list(lines)[-count:]
    for line in last:
        table.add_row(Text(str(line), style=line.style))
    for _ in range(count - len(last)):
        table.add_row("")
    return table


def proof_table(facts: Sequence[Fact]) -> Table:
    """The proof, green where it is as promised, red where not."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for fact in facts:
        style = "green" if fact.fine else "bold red"
        mark = Text("✓" if fact.fine else "✗", style=style)
        table.add_row(mark, fact.name, Text(fact.value, style=style, justify="right"), Text(fact.remark, style="dim"))
    return table
