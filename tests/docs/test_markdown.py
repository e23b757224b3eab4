"""Pages look the same on a git host and on the site, whose Markdown is stricter: lists and tables stand apart from the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT
from tests.docs.links import FENCED

ITEM = re.compile(r"(?:[-*]|\d+\.) ")
NESTED = re.compile(r" {1,3}(?:[-*]|\d+\.) ")
ROW, RULE = re.compile(r"\|"), re.compile(r"\|(?: *:?-+:? *\|)+")


def mistakes(text: str) -> Iterator[str]:
    """What the site would show otherwise than meant."""
    lines = ["", *FENCED.sub(lambda block: "\n" * block[0].count("\n"), text).splitlines(), ""]
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if ITEM.match(line) and before.strip() and not ITEM.match(before) and not before.startswith(" "):
            yield f"an empty line is missing before the list: {line}"
        if NESTED.match(line):
            yield f"a list in a list is indented by four: {line}"
        if ROW.match(line) and before.strip() and not ROW.match(before):
            yield f"an empty line is missing before the table: {line}"
        if ROW.match(line) and not before.strip() and not RULE.fullmatch(after):
            yield f"a table begins with a heading and a rule: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_stand_apart(page: Path) -> None:
    assert list(mistakes(page.read_text())) == []


@pytest.mark.parametrize("text", ["text\n- item\n", "- item\n  - item\n", "text\n| a |\n|---|\n", "| a |\n| b |\n"])
def test_what_would_be_shown_otherwise_is_found(text: str) -> None:
    assert len(list(mistakes(text))) == 1
