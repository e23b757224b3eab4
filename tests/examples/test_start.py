"""The first ten minutes, docs/start.md: what it says to save is saved, to type is typed, and what it shows comes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block, all_of, blocks_of
from tests.docs.terminal import Terminal

PAGE = ROOT / "docs/start.md"


def test_the_first_ten_minutes_go_as_the_page_says(tmp_path: Path) -> None:
    follow(page(), tmp_path)


def page() -> list[Block]:
    return blocks_of(PAGE, PAGE.read_text())


def follow(blocks: Sequence[Block], folder: Path) -> None:
    came, terminal = "", Terminal(folder)
    for block in blocks:
        if block.language == "python":
            (folder / block.options["file"]).write_text(block.code)
        elif block.language == "sh":
            came = "".join(terminal.type(line) for line in block.code.splitlines())
        elif came:
            for line in block.code.splitlines():
                assert re.search(pattern(line), came, re.MULTILINE), f"{line!r} is shown, but this came:\n{came}"
            came = ""


@pytest.mark.parametrize(
    ("right", "wrong"), [("key=order,", "key=ordr,"), ("order-3 committed", "order-3 rolled back")]
)
def test_a_name_that_nobody_has_or_a_line_that_never_comes_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    text = PAGE.read_text()
    assert text.count(right) == 1
    with pytest.raises(AssertionError, match="NameError" if "key" in right else "is shown, but this came"):
        follow(blocks_of(PAGE, text.replace(right, wrong)), tmp_path)


def test_the_page_has_all_its_steps() -> None:
    """If it is written another way one day, the tests above must not pass by finding nothing."""
    assert [block.options["file"] for block in all_of("file of start")] == ["shop.py", "mail.py", "billing.py"]
    assert len(all_of("commands of start")) == 7
    languages = [block.language for block in page()]
    assert {name: languages.count(name) for name in languages} == {"sh": 7, "text": 7, "python": 3}


def pattern(line: str) -> str:
    """A line as it is shown; … stands for what is another each time."""
    return "^" + ".*".join(map(re.escape, line.split("…"))) + "$"
