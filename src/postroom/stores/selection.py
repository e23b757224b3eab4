"""Which messages may go, and what becomes of those that were lost: pure, shared by the stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple, Protocol, TypeVar

from postroom.contracts.lanes import OnLeaseLost
from postroom.contracts.outbox import ALONE_FROM, Buried, Retry, Verdict, per_lane

One = TypeVar("One")
LOST_IN_COMPANY = Retry(timedelta(seconds=1), "LEASE_LOST", "in flight, not alone, when its relay died", spent=False)
"""For one that has a single attempt left: it keeps it."""


class Seen(NamedTuple):
    """A message in the line, or behind a held key, as far as the choice needs it."""

    seq: int
    key: str | None
    lost: int
    """How often it was in flight when its relay died, or lost the lane."""
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


class Suspect(Protocol):
    """A message that may have been lost."""

    @property
    def lost(self) -> int: ...


Some = TypeVar("Some", bound=Suspect)


def company(line: Sequence[Some]) -> list[Some]:
    """Of this line, those that may travel together: all up to the first that was lost in a crash; if that is the head, all
    that were lost once; if it was lost more often, it alone (R8).

    >>> seen = [Seen(seq, None, lost, False, False, False) for seq, lost in enumerate((1, 1, 2, 0))]
    >>> [len(company(seen[start:])) for start in range(4)]
    [2, 1, 1, 1]
    """
    if line and line[0].lost >= ALONE_FROM:
        return list(line[:1])
    suspect = bool(line) and line[0].lost > 0
    return list(takewhile(lambda seen: seen.lost < ALONE_FROM and (seen.lost > 0) == suspect, line))


def fair(lines: Mapping[int, Sequence[One]], limit: int) -> dict[int, list[One]]:
    """At most *limit* in all, the first of every lane before the second of any.

    >>> a, b = (Seen(seq, None, 0, False, False, False) for seq in (1, 2))
    >>> [len(seen) for seen in fair({7: [a, b], 9: [b]}, 2).values()]
    [1, 1]
    """
    cap = per_lane(limit, len(lines))
    places = sorted((place, lane) for lane, line in lines.items() for place in range(min(len(line), cap)))
    chosen: dict[int, list[One]] = {}
    for place, lane in places[:limit]:
        chosen.setdefault(lane, []).append(lines[lane][place])
    return dict(sorted(chosen.items()))


class LostRow(NamedTuple):
    """A message that was in flight when its relay lost the lane."""

    seq: int
    key: str | None
    attempts: int
    lost: int
    """How often before."""


def after_a_crash(
    rows: Iterable[LostRow], lost: OnLeaseLost, alone: Collection[int] = ()
) -> tuple[dict[int, Verdict], set[str]]:
    """What becomes of messages that were in flight when their relay lost the lane (R6), and which keys wait for it. Of
    several of one key, the first one's wait is the key's.

    *alone* are the seqs with which nothing else was in flight in their process. Only such a one is buried, and only if it had
    been lost often enough to travel alone: who was lost in company never loses its last attempt by that (R8)."""
    verdicts: dict[int, Verdict] = {}
    waiting: set[str] = set()
    for seq, key, attempts, before in sorted(rows, key=lambda row: row.seq):
        verdict = lost(attempts + 1)
        if isinstance(verdict, Buried) and (seq not in alone or before < ALONE_FROM):
            verdict = LOST_IN_COMPANY
        if isinstance(verdict, Retry) and key in waiting:
            verdict = replace(verdict, after=timedelta(0))
        verdicts[seq] = verdict
        if key is not None and (isinstance(verdict, Retry) or verdict.park):
            waiting.add(key)
    return verdicts, waiting
