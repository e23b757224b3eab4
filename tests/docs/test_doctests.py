"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import postroom


def modules() -> list[str]:
    return [
        module.name for module in pkgutil.walk_packages(postroom.__path__, "postroom.") if "__main__" not in module.name
    ]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_are_true(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
