"""The pages that are made from the code say what the code declares today."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.reference import pages


@pytest.mark.parametrize("file", pages(), ids=lambda file: file.name)
def test_a_page_made_from_the_code_is_up_to_date(file: Path) -> None:
    assert file.read_text() == pages()[file], "run `python -m tests.docs.reference`"
