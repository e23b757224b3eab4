"""What users read is plain English: no metaphor, no clause turned round, no pronoun to guess.

The pages, and the texts that the program itself writes: every string of a few words in `src/postroom` that is not a docstring.
Each pattern below was once in such a text; beside it is what to write instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom

ROOT = Path(__file__).parents[2]
SOURCE = Path(postroom.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
NOT_READ = ("docs/decisions/", "docs/architecture.md")
"""Written for those who change Postroom, not for those who use it."""

PATTERNS = {
    r"(?<!there )\b(is|are|was|were) no (?!longer|more\b|way\b|one\b|need\b)[\w-]+": "is not a …",
    r"\b(nobody|somebody|whoever)\b": "name who it is: a relay, a receiver, another program; or use the passive",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\bfor ever\b": "forever",
    r"\bits kin\b": "say which others",
    r"\b(in|is) vain\b": "useless, without effect",
    r"\b(in hand|in your hands)\b": "in flight",
    r"\b(waits|is pending|is due) since\b": "has been waiting for, has been pending since",
    r"\bstands? (there|beside it|behind it|twice)\b": "is there, follows, is given twice",
    r"\bit is waited for\b": "Postroom waits for it",
    r"\btwice is fine\b": "may be called twice",
    r"\bpays? (for that|an attempt)\b": "spends an attempt",
}
"""What is refused, and what to write instead. Letter case does not matter."""

ALLOWED = {
    "appendonly is no: a crash loses",  # a setting of Redis and its value
    "appendfsync is no, so waitaof",
    "a_broken_message_lets_nobody_of_its_key_pass",  # names of tests
    "an_old_batch_ends_when_its_lane_is_taken_anew",
    "a lane taken anew forgets its older batches",  # the table of the lanes' rules
    "def test_an_order_without_stock_tells_nobody",
}
"""Pieces of text that may stay."""


def found_in(text: str) -> Iterator[str]:
    """Yield what is refused in this text, each with what to write instead.

    >>> list(found_in("it is no URL: mend it"))
    ['"is no URL": is not a …', '"mend": fix']
    >>> list(found_in("There is no file, and it is no longer open."))
    []
    """
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    for pattern, better in PATTERNS.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield f'"{match[0]}": {better}'


def texts_of(code: str) -> Iterator[tuple[int, str]]:
    """Yield every string of two words or more, with its line; {} for what is put into it. No docstrings.

    >>> list(texts_of('def f(x):\\n    "A docstring."\\n    raise ValueError(f"{x} is wrong: " "write y.")'))
    [(3, '{} is wrong: write y.')]
    """
    tree = ast.parse(code)
    left_out = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    left_out |= {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
    for each in ast.walk(tree):
        if id(each) in left_out:
            continue
        if isinstance(each, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in each.values)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            text = each.value
        else:
            continue
        if " " in text.strip():
            yield each.lineno, text


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not str(page.relative_to(ROOT)).startswith(NOT_READ)], ids=str
)
def test_a_page_is_in_plain_english(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert not [f"{page.name}:{number}: {wrong}" for number, line in enumerate(lines, 1) for wrong in found_in(line)]


def test_the_program_writes_plain_english() -> None:
    wrongs = [
        f"{module.relative_to(SOURCE)}:{number}: {wrong}"
        for module in sorted(SOURCE.rglob("*.py"))
        for number, text in texts_of(module.read_text())
        for wrong in found_in(text)
    ]
    assert not wrongs, "\n".join(wrongs)
