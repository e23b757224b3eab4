"""What a relay in somebody else's process writes to the log: what goes wrong, and that it is well again."""

from __future__ import annotations

import logging

from postroom.events import Event, LanesLost, MessageBuried, RoutePaused, RouteResumed
from postroom.text import one_line

log = logging.getLogger("postroom.embedded")


class EventLogger:
    """A listener that logs. A broker that stays away is told once, aloud, until it is back."""

    def __init__(self) -> None:
        self._away: set[str] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case RoutePaused(delay=None):
                pass  # the relay itself has logged it
            case RoutePaused(route=route, code=code, error=error, delay=delay) if delay is not None:
                level = logging.DEBUG if route in self._away else logging.WARNING
                self._away.add(route)
                pause = delay.total_seconds()
                log.log(
                    level, "Route %s is paused: %s: %s. It is tried again in %g s.", route, code, one_line(error), pause
                )
            case RouteResumed(route=route, seconds=seconds):
                self._away.discard(route)
                log.warning("Route %s is open again, after %.0f s.", route, seconds)
            case MessageBuried(id=id_, type=type_, code=code, error=error):
                log.error(
                    "Message %s (%s) is dead: %s: %s. See `postroom list --status dead`.",
                    id_,
                    one_line(type_),
                    code,
                    one_line(error),
                )
            case LanesLost(lanes=lanes):
                log.warning("%s lanes were lost, because their lease was not renewed in time.", len(lanes))
            case _:
                pass
