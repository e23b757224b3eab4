"""What is said of the requirements is true: each has tests, or says that it has none, and each mark names one that there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.reference.requirements import CONTRACTS, cases, marks_in, showing, shown
from tests.docs.requirements import DOCUMENTS, NOT_YET, REQUIREMENTS

MARKED = """
import pytest

@pytest.mark.requirement("A1", "Z9")
def test_one() -> None: ...

@pytest.mark.requirement("B2")
class TestMore:
    @pytest.mark.parametrize("x", [1])
    @pytest.mark.requirement("B3")
    async def test_two(self, x: int) -> None: ...

def test_none() -> None: ...
"""


def test_every_mark_names_a_requirement() -> None:
    assert {each.requirement for each in shown()} <= set(REQUIREMENTS)


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_a_requirement_has_tests_or_says_that_it_has_none_yet(name: str) -> None:
    assert (REQUIREMENTS[name].missing == NOT_YET) == (not showing(name))


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_a_requirement_is_of_a_document(name: str) -> None:
    assert name[0] in DOCUMENTS


def test_a_test_that_is_marked_is_one_that_pytest_runs() -> None:
    names = {each.test for each in shown()}
    assert names
    assert {name for name in names if not name.startswith(("test_", "Test"))} == set()


def test_the_marks_of_functions_and_classes_are_found(tmp_path: Path) -> None:
    file = tmp_path / "test_marked.py"
    file.write_text(MARKED)
    assert {(each.requirement, each.test) for each in marks_in(file)} == {
        *(("A1", "test_one"), ("Z9", "test_one"), ("B2", "TestMore"), ("B3", "test_two"))
    }


def test_a_case_of_a_contract_is_shown_where_it_stands() -> None:
    assert cases()["test_a_renewed_lease_holds"] == CONTRACTS / "lanes.py"
    assert {name for wanted in REQUIREMENTS.values() for name in wanted.cases} <= set(cases())
