"""A source file is one thing to read: neither too long for one sitting, nor so short that one opens ten for a thought."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/postroom"
LINES_MIN, LINES_MAX = 30, 450

SHORT = {
    "__main__.py": "Python asks for it: `python -m postroom`",
    "clock.py": "the two clocks, which everything imports, and tests replace",
    "integrations/django/apps.py": "Django asks for it",
    "integrations/django/migrations/0001_postroom.py": "Django asks for it",
    "stores/sqlite/url.py": "what a URL says is in url.py, in every store",
    "testing/contracts/schema.py": "the cases of a contract are in the file of its name",
    "transports/nats/doctor.py": "what doctor asks of a transport is in its doctor.py, in every transport",
}
"""Files that are short for a reason."""


@cache
def lines() -> dict[str, int]:
    """How many lines each module has, by its path below the source's folder."""
    return {str(file.relative_to(SOURCE)): len(file.read_text().splitlines()) for file in SOURCE.rglob("*.py")}


def test_no_file_is_too_long() -> None:
    assert {name for name, count in lines().items() if count > LINES_MAX} == set()


def test_no_file_is_too_short() -> None:
    """A package's `__init__` says what the package is, and may be as short as that."""
    short = {name for name, count in lines().items() if count < LINES_MIN and not name.endswith("__init__.py")}
    assert short == SHORT.keys()


@pytest.mark.parametrize("name", SHORT)
def test_a_file_that_is_short_for_a_reason_is_still_short(name: str) -> None:
    assert lines()[name] < LINES_MIN
