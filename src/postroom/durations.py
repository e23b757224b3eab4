"""Durations as people write them: `500ms`, `2s`, `10m`, `1h30m`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from reprlib import repr as short

from postroom.errors import ConfigError

_MICROSECONDS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SPELLING = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _MICROSECONDS))
_PLAIN = re.compile(_NUMBER)
_RIGHT = "write it like 500ms, 2s, 1h30m or 7d; a plain number is seconds."


def parse_duration(value: str | float | timedelta) -> timedelta:
    """Reads a duration, to the microsecond; raises `ConfigError` for anything else and for less than nothing.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    >>> parse_duration("2500ms") == parse_duration("2.5s") == parse_duration("2.5") == parse_duration(2.5)
    True
    """
    try:
        found = _parse_text(value) if isinstance(value, str) else _from_number(value)
    except (OverflowError, ValueError):
        found = None
    if found is None or found < timedelta(0):
        raise ConfigError(f"{short(value)} is not a valid duration; {_RIGHT}", value=value)
    return found


def format_duration(duration: timedelta) -> str:
    """Writes a duration so that `parse_duration` reads the same one back.

    >>> [format_duration(timedelta(seconds=seconds)) for seconds in (5400, 2.5, 0.5, 0)]
    ['1h30m', '2.5s', '500ms', '0s']
    """
    left = duration // timedelta(microseconds=1)
    if left < _MICROSECONDS["s"]:
        return f"{_decimal(left, 'ms')}ms" if left else "0s"
    parts = []
    for unit in ("d", "h", "m"):
        count, left = divmod(left, _MICROSECONDS[unit])
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts) + (f"{_decimal(left, 's')}s" if left else "")


def _parse_text(text: str) -> timedelta | None:
    text = text.strip()
    if _PLAIN.fullmatch(text):
        text += "s"
    match = _SPELLING.fullmatch(text)
    if not match or not text:
        return None
    # Decimal, because 0.1 + 0.2 in floats is not what was written.
    parts = (Decimal(number) * _MICROSECONDS[unit] for unit, number in match.groupdict().items() if number)
    return timedelta(microseconds=round(sum(parts, Decimal(0))))


def _from_number(value: float | timedelta) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    return timedelta(seconds=value) if type(value) in (int, float) else None


def _decimal(microseconds: int, unit: str) -> str:
    return f"{Decimal(microseconds) / _MICROSECONDS[unit]:f}"
