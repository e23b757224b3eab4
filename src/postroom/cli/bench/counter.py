"""How far a phase has come: one line on the terminal, rewritten, and gone at the end."""

from __future__ import annotations

import sys
from typing import Self

from postroom.clock import monotonic

EVERY_SECONDS = 0.1


class Counter:
    """Called with how many are done; shows it on stderr, if that is a terminal."""

    def __init__(self, doing: str, total: int) -> None:
        self._doing, self._total = doing, total
        self._shown = 0.0
        self._shows = sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        now = monotonic()
        if self._shows and now - self._shown > EVERY_SECONDS:
            self._shown = now
            self._write(f"{self._doing} {done:,} of {self._total:,}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shows:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
