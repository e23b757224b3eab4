"""Which of the messages a claim looked at may go: pure, shared by the stores that decide in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from postroom.store import per_lane


class Seen(NamedTuple):
    """A message in the line, or behind a held key, as far as the choice needs it."""

    seq: int
    key: str | None
    solo: bool
    tried: bool
    early: bool
    """It is not due yet."""
    held: bool
    """Its key waits."""


@dataclass(slots=True)
class Choice:
    """What to claim, and what to take out of the line so that nobody walks past it again."""

    ready: list[Seen] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)


def look(line: Iterable[Seen], choice: Choice) -> None:
    """Sort the line of a lane: a held key's messages go behind it, those not due go aside, the rest may go (R13, R14)."""
    for seen in line:
        if seen.held:
            choice.behind.append(seen.seq)
        elif seen.early:
            choice.later.append(seen.seq)
        else:
            choice.ready.append(seen)


def look_behind(waiting: Iterable[Seen], choice: Choice) -> None:
    """Sort what waited behind one key whose time has come: a message in backoff stops the rest of it."""
    for seen in takewhile(lambda seen: not (seen.early and seen.tried), waiting):
        if seen.early:
            choice.later.append(seen.seq)
        else:
            choice.ready.append(seen)


def alone(ready: Iterable[Seen]) -> list[Seen]:
    """In order; one alone if it was lost in a crash, else all before such a one (R8)."""
    line = sorted(ready)
    if line and line[0].solo:
        return line[:1]
    return list(takewhile(lambda seen: not seen.solo, line))


def fair(lines: dict[int, Sequence[Seen]], limit: int) -> dict[int, list[Seen]]:
    """At most *limit* in all, the first of every lane before the second of any.

    >>> a, b = (Seen(seq, None, False, False, False, False) for seq in (1, 2))
    >>> [len(seen) for seen in fair({7: [a, b], 9: [b]}, 2).values()]
    [1, 1]
    """
    cap = per_lane(limit, len(lines))
    places = sorted((place, lane) for lane, line in lines.items() for place in range(min(len(line), cap)))
    chosen: dict[int, list[Seen]] = {}
    for place, lane in places[:limit]:
        chosen.setdefault(lane, []).append(lines[lane][place])
    return dict(sorted(chosen.items()))
