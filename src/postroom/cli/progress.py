"""What a relay is doing, for whoever watches: a view on a terminal, a line now and then in a log."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from postroom.cli.output import printable, write
from postroom.cli.tally import Tally
from postroom.contracts.store import Store
from postroom.events import Event, LanesLost, LanesReleased, LanesTaken, MessageBuried, RoutePaused, RouteResumed
from postroom.text import without_trace

EVERY_SECONDS = 10.0
"""How often a log gets the numbers, at most."""
DEAD_LETTERS_MAX = 20
"""How many dead letters are told one by one between two times of the numbers: a flood of them must not be one of lines."""

NO_ROOM = frozenset(
    {"BLOCKED", "FULL", "NACKED", "NOT_ENOUGH_REPLICAS", "NOT_STORED", "OUT_OF_MEMORY", "STREAM_FULL", "THROTTLED"}
)
"""Codes of a broker that is there, and has no room."""
SAID_MAX = 120
"""How much of an error a line repeats; `postroom explain` has the rest."""


class View(Protocol):
    """Shows a tally while it runs."""

    def __call__(self, event: Event) -> None:
        """Hear of an event; the tally has counted it already."""

    async def run(self) -> None:
        """Show, until cancelled; then leave the terminal in order."""


def view_of(tally: Tally, store: Store) -> View:
    """The view that fits where stdout leads. *store* is for the view alone, and asked only by the one on a terminal."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from postroom.cli.live import LiveView

        return LiveView(tally, store)
    return LogView(tally)


class LogView:
    """Lines in a log: what a person must know at once, and the numbers when they changed."""

    def __init__(self, tally: Tally, *, every: float = EVERY_SECONDS) -> None:
        self._tally, self._every = tally, every
        self._told = tally.numbers
        self._dead_letters = 0
        self._paused: set[str] = set()

    def __call__(self, event: Event) -> None:
        if line := self._line(event):
            _write(line)

    async def run(self) -> None:
        """Tell the numbers, when they changed."""
        while True:
            await asyncio.sleep(self._every)
            if self._dead_letters > DEAD_LETTERS_MAX:
                _write(f"… and {self._dead_letters - DEAD_LETTERS_MAX:,} more dead letters")
            self._dead_letters = 0
            if self._told != self._tally.numbers:
                self._told = self._tally.numbers
                _write(self._tally.summary())

    def _line(self, event: Event) -> str | None:
        match event:
            case LanesTaken():
                return f"took {_lanes(event.lanes)}: {len(self._tally.lanes):,} now"
            case LanesReleased():
                return f"handed over {_lanes(event.lanes)}: {len(self._tally.lanes):,} now"
            case LanesLost():
                return f"lost {_lanes(event.lanes)}: {len(self._tally.lanes):,} now"
            case RoutePaused(delay=None):
                return None  # the relay has logged it, as an error
            case RoutePaused() if event.route not in self._paused:  # each probe in vain says it again
                self._paused.add(event.route)
                return f"route {event.route} is paused: {why_paused(event)} ({_said(event)}); no message pays for that"
            case RouteResumed():
                self._paused.discard(event.route)
                return f"route {event.route} goes on: the broker is back"
            case MessageBuried():
                self._dead_letters += 1
                return dead_letter(event) if self._dead_letters <= DEAD_LETTERS_MAX else None
        return None


def why_paused(event: RoutePaused) -> str:
    """Why nothing goes this way, in a few words; a receiver that answers so is not away, its URL or our proof is wrong."""
    if event.code in NO_ROOM:
        return "the broker takes no more for now"
    return "the receiver refuses us" if event.code.startswith("HTTP_") else "the broker is away"


def dead_letter(event: MessageBuried) -> str:
    """A death in a line."""
    return f"dead letter: {event.type} {event.id}: {_said(event)}"


def _said(event: MessageBuried | RoutePaused) -> str:
    """The code, and what was said with it, as far as a log wants to know."""
    said = ": ".join(filter(None, (event.code, without_trace(event.error))))
    return said if len(said) <= SAID_MAX else f"{said[: SAID_MAX - 1]}…"


def _lanes(lanes: Sequence[int]) -> str:
    return f"{len(lanes):,} lane{'' if len(lanes) == 1 else 's'}"


def _write(line: str) -> None:
    write(printable(line))
    # A log is read while the relay runs, through a pipe or a file.
    sys.stdout.flush()
