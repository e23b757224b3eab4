"""The broker: topics, and what each group of receivers has in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from postroom.contracts.transport import Delivery
from postroom.message import Message
from postroom.transports.inflight import InFlight

TOPIC_DEFAULT = "messages"


@dataclass(slots=True)
class MemoryBroker:
    """Topics, each a list of messages in the order they came."""

    topics: defaultdict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    """By topic and name."""
    known: frozenset[str] | None = None
    """The topics it takes messages for; None: any."""
    largest: int | None = None
    """The largest body it takes, in bytes; None: any."""
    away: bool = False
    """It does not answer."""
    full: bool = False
    """It answers, and takes no more messages for now."""
    cancels: bool = False
    """What is waited for is cancelled, by nobody who was asked to end."""
    source: str = "postroom"
    """Who is said to have sent what is in it."""

    def group(self, topic: str, name: str) -> Group:
        """The group of this name; a new one has everything before it."""
        found = self.groups.get((topic, name))
        if found is None:
            found = self.groups[topic, name] = Group(self.topics[topic])
        return found


@dataclass(slots=True)
class Group:
    """How far the receivers of one group are."""

    line: list[Message]
    """The topic's messages."""
    seen: int = 0
    """How many of them are in flight, or were."""
    in_flight: InFlight[None] = field(default_factory=InFlight)
    """Of all receivers of the group, by the place in the line."""

    def give(self, limit: int, now: float, delivery_of: Callable[[int], Delivery]) -> list[Delivery]:
        """The next messages: first what came back, and of no key anything while an earlier one waits."""
        given = self.in_flight.give(limit, now)
        while len(given) < limit and self.seen < len(self.line):
            end = min(self.seen + limit - len(given), len(self.line))
            for place in range(self.seen, end):
                self.in_flight.arrive(delivery_of(place))
            self.seen = end
            given += self.in_flight.give(limit - len(given), now)
        return given
