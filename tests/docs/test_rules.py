"""The table of rules in docs/explain/lanes.md is true: each rule is named where it is kept, and shown by what is said there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.mutants.scenes import scenes
from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/postroom"
ROW = re.compile(r"^\| (R\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
RULES = [f"R{number}" for number in range(1, 27)]


class Rule(NamedTuple):
    """A row of the table."""

    kept_in: list[str]
    shown_by: list[str]


@cache
def table() -> dict[str, Rule]:
    rows = ROW.findall((ROOT / "docs/explain/lanes.md").read_text())
    return {rule: Rule(files.split(", "), re.findall(r"`(\w+)`", names)) for rule, _, files, names in rows}


@cache
def shows() -> set[str]:
    """Everything that can fail: the tests, the cases of the contracts, the scenes."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(SOURCE / "testing/contracts").glob("*.py")]
    tests = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    return tests | set(scenes())


def test_every_rule_has_its_row() -> None:
    assert list(table()) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_named_in_the_code_where_it_is_kept(rule: str) -> None:
    for file in table()[rule].kept_in:
        assert re.search(rf"\b{rule}\b", (SOURCE / file).read_text()), f"{file} does not name {rule}"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_shown_by_something_that_exists(rule: str) -> None:
    assert table()[rule].shown_by
    assert set(table()[rule].shown_by) <= shows()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutants_scene_stands_in_the_row_of_its_rule_and_names_it(mutant: Mutant) -> None:
    assert mutant.caught_by in table()[mutant.rule].shown_by
    assert re.search(rf"\b{mutant.rule}\b", scenes()[mutant.caught_by].__doc__ or "")


def test_every_scene_stands_in_the_table() -> None:
    assert set(scenes()) <= {name for rule in table().values() for name in rule.shown_by}
