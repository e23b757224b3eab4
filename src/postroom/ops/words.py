"""Numbers, times and errors as a sentence says them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from postroom.durations import format_duration
from postroom.text import without_trace


def roughly(duration: timedelta) -> str:
    """Return the duration in two units at most.

    >>> [roughly(timedelta(seconds=seconds)) for seconds in (0.4, 59.6, 754, 7_261, 360_000)]
    ['0s', '1m', '12m34s', '2h1m', '4d4h']
    """
    units = [timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)]
    unit = units[(duration >= timedelta(hours=1)) + (duration >= timedelta(days=1))]
    return format_duration(round(duration / unit) * unit)


def count(number: int, of: str) -> str:
    """Return the number with its noun, in the plural where it needs one.

    >>> count(1, "try"), count(2, "try"), count(1200, "message")
    ('1 try', '2 tries', '1,200 messages')
    """
    many = f"{of[:-1]}ies" if of.endswith("y") else f"{of}s"
    return f"{number:,} {of if number == 1 else many}"


def ordinal(number: int) -> str:
    """Return which one of several it was.

    >>> [ordinal(number) for number in (1, 2, 3, 11, 22)]
    ['the first', 'the 2nd', 'the 3rd', 'the 11th', 'the 22nd']
    """
    if number == 1:
        return "the first"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"the {number:,}{ending}"


def at(moment: datetime | None, now: datetime) -> str:
    """Return the moment, and how far it is from now, behind an "at".

    >>> noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    >>> at(noon, noon), at(None, noon)
    ('at 2030-01-01 12:00:00Z (now)', 'at an unknown time')
    """
    return "at an unknown time" if moment is None else f"at {when(moment, now)}"


def when(moment: datetime | None, now: datetime) -> str:
    """Return the moment, and how far it is from now.

    >>> noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    >>> when(noon + timedelta(seconds=30), noon), when(noon, noon + timedelta(hours=1))
    ('2030-01-01 12:00:30Z (in 30s)', '2030-01-01 12:00:00Z (1h ago)')
    """
    if moment is None:
        return "an unknown time"
    away = roughly(abs(moment - now))
    distance = f"in {away}" if moment > now else f"{away} ago"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z ({'now' if away == '0s' else distance})"


def error(code: str | None, text: str | None) -> str:
    """Return what went wrong, to stand before a full stop. A row that a stranger wrote may have neither code nor text.

    >>> error("TIMEOUT", "no answer."), error(None, None)
    ('TIMEOUT: no answer', 'no error was kept')
    """
    told = ": ".join(filter(None, (code, without_trace(text or ""))))
    return told.rstrip(". ") or "no error was kept"
