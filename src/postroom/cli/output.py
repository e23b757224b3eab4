"""What is written on stdout: lines of JSON for programs, calm tables for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

UNCUT = 100_000
"""How wide a table may be when it goes to a file or another program: nothing of it is cut."""

GAP = 2
"""Between two columns."""
SIZE_MIN = 2
"""A character and …."""


PRINTED_MAX = 4096
"""How many characters of a text are shown at once: nobody reads more, and a stranger may have written it."""


def printable(text: str, limit: int | None = PRINTED_MAX) -> str:
    r"""The text with every character that a terminal would obey, not show, written as an escape; at most so much of it.

    >>> printable("paid\x1b[2J\n")
    'paid\\x1b[2J\\n'
    """
    if limit is not None and len(text) > limit:
        text = f"{text[: limit - 1]}…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def write(line: str) -> None:
    """Write one line on stdout. Flushed by the end of the command."""
    sys.stdout.write(f"{line}\n")


def write_json(value: Mapping[str, Any]) -> None:
    """Write one object as one line. In ASCII, so that no terminal and no encoding can make anything else of it."""
    write(json.dumps(value))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = False
    flexible: bool = False
    """May it be cut, with …, when the terminal is narrow?"""
    style: str = ""
    whole: bool = False
    """Was all of it asked for? Then it is not cut for its length alone."""


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write an aligned table, one line a row, as wide as the terminal at most. Elsewhere nothing is cut."""
    from rich.table import Table

    limits = [None if column.whole else PRINTED_MAX for column in columns]
    cells = [[printable(text, limit) for text, limit in zip(row, limits, strict=True)] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    console = _console()
    for column, size in zip(columns, _sizes(columns, cells, console.width), strict=True):
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, width=size, style=column.style)
    for row in cells:
        table.add_row(*map(_cell, row))
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        write(line.rstrip())


def _sizes(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    from rich.cells import cell_len

    wanted = [max(map(cell_len, each)) for each in zip([column.title for column in columns], *rows, strict=True)]
    fixed = sum(size for size, column in zip(wanted, columns, strict=True) if not column.flexible)
    flexible = [index for index, column in enumerate(columns) if column.flexible]
    shares = share([wanted[index] for index in flexible], room - fixed - GAP * (len(columns) - 1))
    for index, size in zip(flexible, shares, strict=True):
        wanted[index] = size
    return wanted


def share(wanted: Sequence[int], room: int) -> list[int]:
    """The room, shared fairly: who wants little gets it, the others the same of what is left.

    >>> share([10, 7, 60], 40), share([10, 7, 5], 40), share([30, 30], 3)
    ([10, 7, 23], [10, 7, 5], [2, 2])
    """
    shares = list(wanted)
    smallest_first = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for place, index in enumerate(smallest_first):
        shares[index] = max(min(wanted[index], room // (len(wanted) - place)), SIZE_MIN)
        room -= shares[index]
    return shares


def width() -> int:
    """How many columns a table may have."""
    return int(_console().width)


def _cell(text: str) -> Any:
    from rich.text import Text

    # Text, never a string: a string's [brackets] are markup to rich.
    return Text(text, no_wrap=True, overflow="ellipsis", style=_STYLES.get(text, ""))


_STYLES = {"dead": "red", "failed": "yellow", "sending": "cyan"}


def _console() -> Any:
    from rich.console import Console

    in_terminal = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(file=sys.stdout, width=None if in_terminal else UNCUT, highlight=False)


def rough(duration: timedelta) -> str:
    """A duration as a person says it: two units at most.

    >>> [rough(timedelta(seconds=s)) for s in (0, 0.0321, 7.6, 754, 7_260, 360_000)]
    ['0s', '32ms', '7.6s', '12m 34s', '2h 1m', '4d 4h']
    """
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    for unit, size, part, part_size in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return f"{whole}{unit} {rest // part_size}{part}"
    raise AssertionError(seconds)
