"""Which messages may go, and what becomes of those that were lost: pure, shared by the stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple, TypeVar

from postroom.store import Lost, Retry, Verdict, per_lane

One = TypeVar("One")


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


def fair(lines: Mapping[int, Sequence[One]], limit: int) -> dict[int, list[One]]:
    """At most *limit* in all, the first of every lane before the second of any.

    >>> a, b = (Seen(seq, None, False, False, False, False) for seq in (1, 2))
    >>> [len(seen) for seen in fair({7: [a, b], 9: [b]}, 2).values()]
    [1, 1]
    """
    cap = per_lane(limit, len(lines))
    places = sorted((place, lane) for lane, line in lines.items() for place in range(min(len(line), cap)))
    chosen: dict[int, list[One]] = {}
    for place, lane in places[:limit]:
        chosen.setdefault(lane, []).append(lines[lane][place])
    return dict(sorted(chosen.items()))


def after_a_crash(lost_rows: Iterable[tuple[int, str | None, int]], lost: Lost) -> tuple[dict[int, Verdict], set[str]]:
    """What becomes of messages (seq, key, attempts) that were in flight when their relay lost the lane (R6), and which
    keys wait for it. Of several of one key, the first one's wait is the key's."""
    verdicts: dict[int, Verdict] = {}
    waiting: set[str] = set()
    for seq, key, attempts in sorted(lost_rows):
        verdict = lost(attempts + 1)
        if isinstance(verdict, Retry) and key in waiting:
            verdict = replace(verdict, after=timedelta(0))
        verdicts[seq] = verdict
        if key is not None and (isinstance(verdict, Retry) or verdict.park):
            waiting.add(key)
    return verdicts, waiting
