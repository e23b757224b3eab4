"""The broker: topics, and what each group of receivers has in hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

from postroom.clock import monotonic
from postroom.message import Message

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
    """How many of them were delivered at least once."""
    open: dict[int, Open] = field(default_factory=dict)
    """Those of them that are not done, by place, in order."""

    def take(self, limit: int, holder: object) -> list[tuple[int, Open]]:
        """The next messages, for this holder: first what came back, and of no key anything while an earlier one waits."""
        now, waiting, taken = monotonic(), set[str | None](), list[tuple[int, Open]]()
        for place in chain(list(self.open), range(self.seen, len(self.line))):
            if len(taken) == limit:
                break
            entry = self.open.setdefault(place, Open())
            self.seen = max(self.seen, place + 1)
            key = self.line[place].key
            if entry.holder is None and (entry.due > now or key in waiting):
                waiting |= {key} if key is not None else set()
            elif entry.holder is None:
                taken.append((place, entry))
        for _, entry in taken:
            entry.holder, entry.deliveries = holder, entry.deliveries + 1
        return taken


@dataclass(slots=True)
class Open:
    """A message that is not done."""

    holder: object = None
    deliveries: int = 0
    due: float = 0.0
