"""What a relay is doing, for whoever watches: one line that is rewritten on a terminal, a line now and then in a log."""

from __future__ import annotations

import asyncio
import sys

from postroom.cli.notes import note
from postroom.cli.output import write
from postroom.clock import monotonic
from postroom.events import Event, LanesLost, LanesReleased, LanesTaken, RoutePaused, RouteResumed, Settled

ON_TERMINAL_SECONDS = 0.2
IN_LOG_SECONDS = 10.0


class Progress:
    """Listens to a relay, and shows what it heard."""

    def __init__(self) -> None:
        self._begin = monotonic()
        self._lanes: set[int] = set()
        self._published = self._failed = self._dead = self._expired = 0
        self._paused = False

    def __call__(self, event: Event) -> None:
        match event:
            case Settled():
                self._published += event.published
                self._failed += event.failed
                self._dead += event.dead
                self._expired += event.expired
            case LanesTaken():
                self._lanes.update(event.lanes)
            case LanesReleased() | LanesLost():
                self._lanes.difference_update(event.lanes)
            case RoutePaused():
                if not self._paused:
                    note("the broker is away: waiting for it, no message pays for that")
                self._paused = True
            case RouteResumed():
                note("the broker is back")
                self._paused = False

    async def show(self) -> None:
        """Show the state again and again, when it changed, until cancelled."""
        on_terminal = sys.stderr.isatty()
        shown = ""
        while True:
            await asyncio.sleep(ON_TERMINAL_SECONDS if on_terminal else IN_LOG_SECONDS)
            line = self.summary()
            if line != shown:
                shown = line
                if on_terminal:
                    sys.stderr.write(f"\r\033[K{line}")
                    sys.stderr.flush()
                else:
                    write(line)

    def summary(self) -> str:
        """The state in a line."""
        seconds = max(monotonic() - self._begin, 0.001)
        parts = [
            f"{self._published:,} published ({self._published / seconds:,.0f}/s)",
            f"{self._failed:,} failed tries",
            f"{self._dead:,} dead",
        ]
        if self._expired:
            parts.append(f"{self._expired:,} expired")
        parts.append(f"{len(self._lanes)} lanes")
        return ", ".join(parts)
