"""Measuring two ways side by side, and printing what came out.

The machine is shared and its speed wanders, so a time by itself says nothing. Both ways take turns in short slices, in
the order A B, B A, A B ...; what counts is the median of the ratios of neighbouring slices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, TypeAlias, TypedDict

Slice: TypeAlias = Callable[[], float]
"""Does some work of one kind and answers how fast it went."""

HEADINGS = ("", "base", "rate", "ours", "rate", "result", "target", "met")
LEFT = (0, 1, 3)
"""Columns of words; the others hold numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison. `result` is ours to the base: a ratio, or a difference in the `unit`. Without a base it is ours."""

    what: str
    base: str = ""
    base_rate: float | None = None
    ours: str
    our_rate: float
    unit: str
    result: float
    target: float | None = None
    """At least this ratio; at most this difference, or value. None: for information."""
    difference: bool = False

    @property
    def kind(self) -> Literal["ratio", "difference", "value"]:
        """What `result` is."""
        if self.base_rate is None:
            return "value"
        return "difference" if self.difference else "ratio"

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.result >= self.target if self.kind == "ratio" else self.result <= self.target

    def cells(self) -> tuple[str, ...]:
        """The row as the table shows it."""
        target = ""
        if self.target is not None:
            target = f"≥ {self.target:.2f}" if self.kind == "ratio" else f"≤ {self.target:g} {self.unit}"
        results = {"ratio": f"{self.result:.2f}", "difference": f"{self.result:+.1f} {self.unit}"}
        return (
            self.what,
            self.base,
            "" if self.base_rate is None else _rate(self.base_rate, self.unit),
            self.ours,
            _rate(self.our_rate, self.unit),
            results.get(self.kind, _rate(self.result, self.unit)),
            target,
            {True: "yes", False: "NO", None: ""}[self.met],
        )

    def facts(self) -> dict[str, Any]:
        """The row for scripts."""
        names = ("what", "base", "base_rate", "ours", "our_rate", "unit", "result", "target", "met")
        return {name: getattr(self, name) for name in names} | {"result_is": self.kind}


def value(what: str, ours: str, result: float, unit: str, *, target: float | None = None) -> Row:
    """A row that stands by itself: a latency, a size. At most the target."""
    return Row(what=what, ours=ours, our_rate=result, unit=unit, result=result, target=target)


def take_turns(what: str, base: Slice, ours: Slice, *, rounds: int) -> list[tuple[float, float]]:
    """The pairs of rates (base, ours) of *rounds* rounds, after one that warms up and is forgotten."""
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        progress(f"{what}: round {number} of {rounds}")
        if number % 2:
            base_rate, our_rate = base(), ours()
        else:
            our_rate, base_rate = ours(), base()
        pairs.append((base_rate, our_rate))
    return pairs[1:]


class Rates(TypedDict):
    """The fields of a Row that were measured."""

    base_rate: float
    our_rate: float
    result: float


def ratio(pairs: Sequence[tuple[float, float]]) -> Rates:
    """The medians of both rates, and of what they are to each other."""
    return {
        "base_rate": median(base for base, _ in pairs),
        "our_rate": median(ours for _, ours in pairs),
        "result": median(ours / base for base, ours in pairs),
    }


def progress(text: str) -> None:
    """Say on stderr what is going on: one line that changes, or, where nobody watches, nothing."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def table(rows: Iterable[Row]) -> str:
    """The rows, aligned."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def aligned(line: tuple[str, ...]) -> str:
        cells = zip(line, widths, strict=True)
        return "  ".join(f"{cell:{'<' if n in LEFT else '>'}{width}}" for n, (cell, width) in enumerate(cells)).rstrip()

    return "\n".join(map(aligned, lines))


def _rate(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
