"""A module whose name begins with an underscore is its own package's, and nobody else imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "bench", "deploy", "examples", "tests")
PRIVATE = [path for path in (ROOT / "src").rglob("_[a-z]*") if path.is_dir() or path.suffix == ".py"]
KNOWN = {"postroom.testing.contracts._case"}
"""Imported by our own tests all the same. This set only ever shrinks."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported there, and every name that is imported from one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_module(name: str) -> str | None:
    """Return the module of ours with an underscore that this is, or is in."""
    modules = (".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in PRIVATE)
    return next((module for module in modules if name == module or name.startswith(f"{module}.")), None)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_private_module_is_imported_in_its_own_package_alone(folder: str) -> None:
    wrong = set()
    for file in (ROOT / folder).rglob("*.py"):
        text = file.read_text()
        if not any(path.stem in text for path in PRIVATE):
            continue
        package = ".".join(file.relative_to(ROOT / "src").parent.parts) if folder == "src" else folder
        for name in imported(ast.parse(text)):
            module = private_module(name) if name.startswith("postroom.") else None
            if module is not None and module.rpartition(".")[0] != package:
                wrong.add((str(file.relative_to(ROOT)), module))
    assert {each for each in wrong if folder != "tests" or each[1] not in KNOWN} == set()
