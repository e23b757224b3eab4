"""The story on a terminal: a table of messages that move, the fault that strikes, and below it what happens."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from postroom.cli.demo.books import Books
from postroom.cli.demo.picture import LINES, Banner, picture, proof_table
from postroom.cli.demo.proof import Fact
from postroom.cli.demo.telling import Line

PACE_SECONDS = 0.55


class LiveStage:
    """See `postroom.cli.demo.stage.Stage`."""

    pace = PACE_SECONDS

    def __init__(self, console: Console | None = None) -> None:
        self.fallen: set[str] = set()
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

    def mend(self, how: str) -> None:
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
