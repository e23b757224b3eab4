"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re

import pytest

import postroom

DJANGOS_OWN = r"postroom\.integrations\.django\.(models|admin|migrations\.\w+)"
"""What Django imports once it has read a project's settings; tests/unit/integrations/django runs it there."""


def modules() -> list[str]:
    names = (module.name for module in pkgutil.walk_packages(postroom.__path__, "postroom."))
    return [name for name in names if "__main__" not in name and not re.fullmatch(DJANGOS_OWN, name)]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_are_true(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
