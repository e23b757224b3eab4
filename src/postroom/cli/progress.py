"""How far something has come, for the person who watches: a relay's view on a terminal or its lines in a log, and a count."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from postroom.cli.output import printable, write
from postroom.clock import monotonic
from postroom.contracts.store import Store
from postroom.events import Event, LanesLost, LanesReleased, LanesTaken, MessageBuried, RoutePaused, RouteResumed
from postroom.ops.rates import RelayTotals
from postroom.ops.words import count
from postroom.text import without_trace

if TYPE_CHECKING:
    from rich.status import Status

Thing = TypeVar("Thing")
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
PATIENCE_SECONDS = 1.0
"""What is done sooner needs no progress."""
COUNTED_MIN = 500
"""Looking at the clock for each message would cost more than the message."""


class Tally:
    """Listens to a relay, counts by the clock, and knows what the relay was told to do."""

    def __init__(self, *, draining: bool = False, brokers: int = 1, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._draining = clock, draining
        self.totals = RelayTotals(clock(), brokers)
        self.stopping = False

    def __call__(self, event: Event) -> None:
        self.totals.add(event, self._clock())

    @property
    def seconds(self) -> float:
        """For how long the relay has run."""
        return self.totals.seconds(self._clock())

    @property
    def rates(self) -> tuple[float, float]:
        """Messages published a second: over the last few seconds, and over all."""
        now = self._clock()
        return self.totals.rate_now(now), self.totals.rate(now)

    @property
    def state(self) -> str:
        """What the relay is doing, in a word or two."""
        if self.stopping:
            return "stopping"
        if self.totals.is_paused:
            all_shut = len(self.totals.shut) == len(self.totals.paused)
            return "shut: a person must act" if all_shut else "paused: broker away"
        return "draining" if self._draining else "running"

    @property
    def shut(self) -> Sequence[str]:
        """A sentence for each route that stays paused until a person acts."""
        return [
            f"route {event.route} is shut ({event.code}): fix it, or take it out, and restart the relay."
            for event in self.totals.shut
        ]

    def summary(self) -> str:
        """Return the totals in a line."""
        totals = self.totals
        parts = [
            f"{totals.published:,} published ({self.rates[1]:,.0f}/s)",
            f"{totals.failed:,} failed {'try' if totals.failed == 1 else 'tries'}",
            f"{totals.dead:,} dead",
        ]
        if totals.expired:
            parts.append(f"{totals.expired:,} expired")
        return ", ".join(parts)


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
        self._told = tally.totals.numbers
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
            if self._told != self._tally.totals.numbers:
                self._told = self._tally.totals.numbers
                _write(self._tally.summary())

    def _line(self, event: Event) -> str | None:
        match event:
            case LanesTaken():
                return f"took {count(len(event.lanes), 'lane')}: {len(self._tally.totals.lanes):,} now"
            case LanesReleased():
                return f"handed over {count(len(event.lanes), 'lane')}: {len(self._tally.totals.lanes):,} now"
            case LanesLost():
                return f"lost {count(len(event.lanes), 'lane')}: {len(self._tally.totals.lanes):,} now"
            case RoutePaused(delay=None):
                return None  # the relay has logged it, as an error
            case RoutePaused() if event.route not in self._paused:  # each probe in vain says it again
                self._paused.add(event.route)
                return (
                    f"route {event.route} is paused: {why_paused(event)} ({_said(event)}); no message spends an attempt"
                )
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


def _write(line: str) -> None:
    write(printable(line))
    # A log is read while the relay runs, through a pipe or a file.
    sys.stdout.flush()


class Meter:
    """Counts messages on stderr, if that is a terminal and it takes longer than `PATIENCE_SECONDS`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._began = monotonic()
        self._status: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def counted(self, things: Iterable[Thing], by: Callable[[Thing], int] = lambda _: 1) -> Iterator[Thing]:
        """Yield the things, counted as they pass; `by` says how many messages one of them is."""
        passed, shown = 0, 0
        for thing in things:
            yield thing
            passed += by(thing)
            if passed - shown >= COUNTED_MIN:
                shown = passed
                self._show(passed)

    def _show(self, passed: int) -> None:
        if monotonic() - self._began < PATIENCE_SECONDS or not sys.stderr.isatty():
            return
        text = f"{self._doing} {passed:,} messages"
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status(text, spinner="line")
            self._status.start()
        self._status.update(text)
