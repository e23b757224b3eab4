"""No block of any page is left out: each is under one rule, and each rule is a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.blocks import KINDS, PAGES, ROOT, Block, all_blocks, blocks_of, kinds_of
from tests.docs.console import run_console, says

TESTS = [file for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]


@pytest.mark.parametrize("block", all_blocks(), ids=str)
def test_a_block_is_under_one_rule(block: Block) -> None:
    assert len(kinds_of(block)) == 1, (
        f"```{block.info} is under {kinds_of(block) or 'no rule'}; see tests/docs/blocks.py"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_a_test(kind: str) -> None:
    named = {
        name
        for file in TESTS
        for names in re.findall(r"\b(?:each|all_of|files_of)\(([^)]*)\)", file.read_text())
        for name in names.split(", ")
    }
    assert f'"{kind}"' in named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_fence_of_a_page_belongs_to_a_block(page: Path) -> None:
    text = page.read_text()
    fences = len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE))
    assert fences == 2 * len(blocks_of(page, text))


def test_there_are_blocks() -> None:
    """If pages are written another way one day, the tests must not pass by finding nothing."""
    found = [kind for block in all_blocks() for kind in kinds_of(block)]
    assert len(all_blocks()) >= 50
    assert {"program", "inbox", "console", "commands", "settings", "sql", "url", "picture", "webhooks"} <= set(found)
    assert {kind for kind in found if " of " in kind} == {kind for kind in KINDS if " of " in kind}
    assert {kind for kind in found if " at " in kind} == {kind for kind in KINDS if " at " in kind}


@pytest.mark.parametrize(
    "info", ["", "py", "pyhton", "python server=kakfa", "python project=djnago", "text server=kafka", "console inbox"]
)
def test_a_block_that_nobody_would_run_is_found(info: str) -> None:
    (block,) = blocks_of(ROOT / "README.md", f"```{info}\nx\n```\n")
    assert kinds_of(block) == []


def test_what_a_command_says_is_compared() -> None:
    assert says(["order.paid  …", "…", "end"], "order.paid  018f2c5e\na\nb\nend\n")
    assert not says(["order.paid"], "order.paid\nmore\n")
    assert not says(["order.paid  …"], "order.lost  018f2c5e\n")


@pytest.mark.parametrize(
    "code",
    ["$ postroom --version\npostroom 7\n", "$ postroom rely\n", "$ postroom --version  # exit code 1\n", "$ rm -r /\n"],
)
def test_a_console_block_that_lies_is_found(code: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_console(code, tmp_path)
