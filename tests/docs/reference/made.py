"""What the pages have in common: the line that says how they are made, tables, and the words that the code itself has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `python -m tests.docs.reference` from what the code declares; a test compares. -->"
EXPLAINED = re.compile(r"^    (\w+): [^\n]+\n    \"\"\"(.+?)\"\"\"", re.MULTILINE | re.DOTALL)


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", MADE, *(part.strip("\n") for part in parts if part)]) + "\n"


def explained(declaration: type) -> dict[str, str]:
    """What each field of a class says of itself, in the text below it."""
    found: dict[str, str] = {}
    for base in reversed(declaration.__mro__[:-1]):
        if base.__module__.startswith("postroom"):
            found |= {name: " ".join(text.split()) for name, text in EXPLAINED.findall(inspect.getsource(base))}
    return found


def paragraphs(thing: object) -> list[str]:
    """The paragraphs of a docstring, each in one line; code left out."""
    text = re.sub(r"```.*?```", "", inspect.getdoc(thing) or "", flags=re.DOTALL)
    found = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [part for part in found if part and not part.startswith(">>>")]


def first(thing: object) -> str:
    """The first paragraph of a docstring: what it promises."""
    found = paragraphs(thing)
    assert found, f"{thing!r} has no docstring"
    return found[0]


def table(rows: Sequence[Iterable[str]]) -> str:
    """The rows as a table, the first one its heading."""
    heading, *rest = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([heading, "|" + "---|" * len(list(rows[0])), *rest])


def cell(text: str) -> str:
    """A text that a table can hold."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)
