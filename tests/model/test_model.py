"""The quick part of the model: the protocol holds in small configurations, and breaks without any of its newer rules.

The rest takes minutes: `python -m tests.model`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.base import BASE
from tests.model.checker import check
from tests.model.mutants import MUTANTS

TINY = {"keys": "aa", "tx": (0, 1), "fail": (0,), "rollback": (), "lost": 0}
QUICK = {
    "database answers lost, a commit under way": dict(TINY, crash=0, pause=0, dberr=2, commit2=True),
    "a pause, and a commit under way": dict(TINY, crash=0, pause=1, dberr=1, commit2=True, fail=()),
    "poison + innocents, cap 2, halves": BASE["B24 poison + innocents, cap 2, halves"],
}
BITES = [
    "doubt is looked into without the lane's lock, a commit under way",
    "a renewal answered late counts, a settle gives up without doubt",
    "a trip ends quietly while it holds a lane",
    "who is lost in company is buried for it, cap 1",
    "same, cap 2, in halves",
    "a loss is not remembered",
    "claim answer lost, no reconcile",
    "take adds attempts without burying",
    "a failure does not stop the key in the batch",
]


@pytest.mark.parametrize("name", QUICK)
def test_no_invariant_breaks(name: str) -> None:
    result: dict[str, Any] = check(name, told=False, **QUICK[name])
    assert result["inv"] is None, result["trace"]


@pytest.mark.parametrize("name", BITES)
def test_without_the_rule_an_invariant_breaks(name: str) -> None:
    ((expected, settings),) = [(expected, kw) for mutant, expected, kw in MUTANTS if mutant == name]
    assert expected is not None
    assert check(name, told=False, sym=False, **settings)["inv"] == expected
