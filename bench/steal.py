"""How much of this machine's time somebody else took: on a shared host a latency says nothing without it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

STEAL = 7
"""The place of the stolen time in the first line of /proc/stat; user and nice, before it, hold the guests' already."""
COLUMNS = 8


class Steal:
    """The share of the time that was stolen while this lasted, 0 to 1; 0 where it cannot be known."""

    def __init__(self) -> None:
        self.share = 0.0

    def __enter__(self) -> Self:
        self._before = _ticks()
        return self

    def __exit__(self, *exc: object) -> None:
        spent = [after - before for after, before in zip(_ticks(), self._before, strict=True)]
        self.share = spent[STEAL] / max(sum(spent), 1)


def _ticks() -> list[int]:
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return [0] * COLUMNS
    return [int(word) for word in first.split()[1 : COLUMNS + 1]]
