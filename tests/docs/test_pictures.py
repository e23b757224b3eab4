"""```text: a picture, or a table. Nothing in it is something to type: that has a language, and a rule that runs it."""

from __future__ import annotations

import re

import pytest
from tests.docs.blocks import Block, each

TYPED = r"\$ |import [\w.]+$|from [\w.]+ import |postroom |pip |make |SELECT |INSERT |UPDATE |DELETE |CREATE "
CODE = re.compile(rf"^\s*({TYPED})", re.MULTILINE)
WIDTH = 150
"""How wide a picture may be before it has to be scrolled on a large screen."""


def is_a_picture(code: str) -> bool:
    return CODE.search(code) is None


@each("picture")
def test_a_picture_is_no_code_in_disguise(block: Block) -> None:
    assert is_a_picture(block.code)


@each("picture")
def test_a_picture_fits_a_screen(block: Block) -> None:
    assert max(len(line) for line in block.code.splitlines()) <= WIDTH


@pytest.mark.parametrize("line", ["$ postroom init", "  import sqlite3", "from postroom import Message", "SELECT 1"])
def test_code_in_disguise_is_found(line: str) -> None:
    assert not is_a_picture(f"a box\n{line}\n")
