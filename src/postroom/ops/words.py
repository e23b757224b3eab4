"""Numbers and times as a sentence says them."""

from __future__ import annotations

from datetime import timedelta

from postroom.durations import format_duration


def roughly(duration: timedelta) -> str:
    """The duration in two units at most.

    >>> [roughly(timedelta(seconds=seconds)) for seconds in (0.4, 59.6, 754, 7_261, 360_000)]
    ['0s', '1m', '12m34s', '2h1m', '4d4h']
    """
    units = [timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)]
    unit = units[(duration >= timedelta(hours=1)) + (duration >= timedelta(days=1))]
    return format_duration(round(duration / unit) * unit)


def count(number: int, of: str) -> str:
    """So many of them.

    >>> count(1, "try"), count(2, "try"), count(1200, "message")
    ('1 try', '2 tries', '1,200 messages')
    """
    many = f"{of[:-1]}ies" if of.endswith("y") else f"{of}s"
    return f"{number:,} {of if number == 1 else many}"


def ordinal(number: int) -> str:
    """Which one it was.

    >>> [ordinal(number) for number in (1, 2, 3, 11, 22)]
    ['the first', 'the 2nd', 'the 3rd', 'the 11th', 'the 22nd']
    """
    if number == 1:
        return "the first"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"the {number:,}{ending}"
