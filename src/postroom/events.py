"""What can happen, as a closed list of values: logs, metrics and traces listen to these and to nothing else.

Where all goes well an event tells of a batch, so that listening costs nothing per message. Only what goes
wrong with one message has an event of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MessagesPut:
    """Messages were written in a transaction, which may still roll back."""

    count: int
    """How many."""


@dataclass(frozen=True, kw_only=True)
class _OfLanes:
    owner: str
    """The relay, by the name that it has from its start on."""
    lanes: tuple[int, ...]
    """Their numbers."""


class LanesTaken(_OfLanes):
    """A relay owns these lanes from now on."""


class LanesReleased(_OfLanes):
    """A relay gave these lanes back, with nothing of theirs in flight."""


class LanesLost(_OfLanes):
    """A living relay lost these lanes: its lease ran out before it was renewed."""


@dataclass(frozen=True, kw_only=True)
class BatchClaimed:
    """A batch was claimed."""

    count: int
    """How many messages."""
    lanes: int
    """Of how many lanes."""
    seconds: float
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class BatchPublished:
    """The broker durably confirmed so many messages of a batch."""

    route: str
    """The route's name."""
    count: int
    """How many messages."""
    seconds: float
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class BatchSettled:
    """The outcomes of a batch were committed."""

    published: int = 0
    """Messages that are published."""
    failed: int = 0
    """Tries that failed and cost an attempt."""
    dead: int = 0
    """Messages that wait for a person."""
    expired: int = 0
    """Messages that were not sent in time."""
    seconds: float
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class _OfMessage:
    id: UUID
    """The message's id."""
    type: str
    """The message's type."""
    attempts: int
    """Tries made."""
    code: str
    """Why: one of `postroom.codes`, or the broker's own."""
    error: str = ""
    """What the broker or the handler said, in its words."""
    correlation_id: str | None = None
    """What the message belongs to."""
    idempotency_key: str | None = None
    """As it is: who writes it to a log hashes it first."""


@dataclass(frozen=True, kw_only=True)
class MessageRetried(_OfMessage):
    """A try failed, or its broker was away; there will be another after `delay`."""

    delay: timedelta
    """How long it waits."""
    spent: bool = True
    """Did it cost an attempt? Not when the broker was away, or no route fits it."""


class MessageBuried(_OfMessage):
    """A message is dead and waits for a person. It may have been delivered, where an answer was lost."""


class MessageExpired(_OfMessage):
    """A message was not sent, because its time was over."""


@dataclass(frozen=True, kw_only=True)
class RoutePaused:
    """The broker is away, or the route is wrong: nothing goes this way for `delay`, and no message spends an attempt."""

    route: str
    """The route's name."""
    code: str
    """Why: one of `postroom.codes`, or the broker's own."""
    error: str = ""
    """What the broker said, in its words."""
    delay: timedelta | None
    """How long nothing goes this way. None: the route is shut until a person fixes it and starts the relay again."""


@dataclass(frozen=True, kw_only=True)
class RouteResumed:
    """The broker answers again."""

    route: str
    """The route's name."""
    seconds: float
    """How long it was away."""


LaneEvent = LanesTaken | LanesReleased | LanesLost
BatchEvent = MessagesPut | BatchClaimed | BatchPublished | BatchSettled
MessageEvent = MessageRetried | MessageBuried | MessageExpired
RouteEvent = RoutePaused | RouteResumed
Event = LaneEvent | BatchEvent | MessageEvent | RouteEvent
Listener = Callable[[Event], None]


class Listeners:
    """Tells each listener of each event; one that raises harms neither the relay nor the others.

    It is a listener itself, and false when nobody listens: then an event need not be made.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self._broken: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        """Tells this listener too, from the next event on."""
        self._listeners += (listener,)

    def __call__(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                # Aloud only once: a listener that fails at one event fails at each.
                level = logging.DEBUG if id(listener) in self._broken else logging.ERROR
                self._broken.add(id(listener))
                # The event's name and no more: its fields may hold what belongs in no log.
                logger.log(level, "Listener %r failed at %s.", listener, type(event).__name__, exc_info=True)
