"""Where the story is told, and how long a moment is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from postroom.cli.demo.books import Books
from postroom.cli.demo.proof import Fact
from postroom.cli.demo.telling import Line


class Stage(Protocol):
    """Tells the story."""

    pace: float
    """How many seconds a moment takes. 0: nobody watches."""
    fallen: set[str]
    """The relays that are dead."""

    def open(self) -> AbstractContextManager[object]:
        """The curtain: what is shown while it is open is put in order after it."""

    def scene(self, title: str) -> None:
        """Begin another part of the story."""

    def strike(self, fault: str, now: str = "") -> None:
        """A fault strikes, and this is how it stands now; told again while it lasts."""

    def mend(self, how: str) -> None:
        """The fault is over."""

    def tell(self, line: Line) -> None:
        """Something happened."""

    def show(self, books: Books) -> None:
        """How the books stand now. Told again and again."""

    def dwell(self, books: Books) -> None:
        """Nothing can move without a person: how the books stand."""

    def prove(self, facts: Sequence[Fact]) -> None:
        """The end: what the stores say."""
