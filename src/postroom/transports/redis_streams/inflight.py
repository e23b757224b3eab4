"""What a receiver has: in the application's hands, or waiting to be given to it. Pure.

```
   read, taken over ─▶ waiting ─▶ in hand ─▶ acknowledged
                          ▲           │
                          └─ refused ─┘   until it is due, nothing behind it of its key is given out
```
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from postroom.message import Message
from postroom.transports.redis_streams.encoding import read


class StreamId(NamedTuple):
    """Where in the stream an entry stands."""

    milliseconds: int
    number: int


@dataclass(slots=True, eq=False)
class Entry:
    """An entry of the stream that is ours."""

    id: bytes
    place: StreamId
    message: Message
    source: str
    fault: str | None
    deliveries: int
    due: float = 0.0
    was_refused: bool = False


def entry_of(id_: bytes, words: Sequence[bytes], deliveries: int = 1) -> Entry:
    """An entry as the server tells it."""
    milliseconds, _, number = id_.partition(b"-")
    message, source, fault = read(words)
    return Entry(id_, StreamId(int(milliseconds), int(number)), message, source, fault, deliveries)


class InFlight:
    """All that is ours, each entry once."""

    def __init__(self) -> None:
        self.held: dict[bytes, Entry] = {}
        """In the application's hands."""
        self._waiting: list[Entry] = []
        """In the stream's order."""

    @property
    def ids(self) -> set[bytes]:
        return {*self.held, *(entry.id for entry in self._waiting)}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def put(self, entries: Iterable[Entry]) -> None:
        """These came. One that is here already stays as it is."""
        known = self.ids
        for entry in entries:
            if entry.id not in known:
                insort(self._waiting, entry, key=lambda each: each.place)

    def ready(self, limit: int, now: float) -> list[Entry]:
        """Those that can be given out now, in the stream's order; they stay where they are."""
        chosen: list[Entry] = []
        held_up: set[str] = set()
        for entry in self._waiting:
            if len(chosen) >= limit:
                break
            key = entry.message.key
            if key is not None and key in held_up:
                continue
            if entry.due <= now:
                chosen.append(entry)
            elif key is not None:
                held_up.add(key)
        return chosen

    def give(self, entries: Sequence[Entry]) -> None:
        """They are in the application's hands now."""
        given = {entry.id for entry in entries}
        self._waiting = [entry for entry in self._waiting if entry.id not in given]
        self.held.update((entry.id, entry) for entry in entries)

    def refuse(self, entry: Entry, due: float) -> None:
        """It comes again when it is due."""
        if self.held.pop(entry.id, None) is not None:
            again = Entry(
                entry.id, entry.place, entry.message, entry.source, entry.fault, entry.deliveries, due, was_refused=True
            )
            insort(self._waiting, again, key=lambda each: each.place)

    def next_due(self, now: float) -> float:
        """When the next refused one comes."""
        return min((entry.due for entry in self._waiting if entry.due > now), default=float("inf"))

    def drop(self, ids: Iterable[bytes]) -> None:
        """These are not ours any more."""
        gone = set(ids)
        self._waiting = [entry for entry in self._waiting if entry.id not in gone]
        for id_ in gone:
            self.held.pop(id_, None)

    def clear(self) -> None:
        """Nothing is."""
        self.held.clear()
        self._waiting.clear()
