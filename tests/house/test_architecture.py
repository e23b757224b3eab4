"""docs/architecture.md says what is there: its folders, layers, files and functions are those of the code."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from tests.docs.blocks import all_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/postroom"
PAGE = (ROOT / "docs/architecture.md").read_text()
FILE = r"[\w/]+\.(?:py|sql)"
IN_OTHER_FOLDERS = ("docs/", "tests/")


(TREE,) = all_of("tree of the architecture")
(LAYERS,) = all_of("layers of the architecture")


def folders_of_the_page() -> set[str]:
    """The folders in the drawn tree, by their paths below the source's folder."""
    path: list[str] = []
    found = set()
    for line in TREE.code.splitlines()[1:]:
        match = re.match(r"((?:│   |    )*)(?:├── |└── )(\w+)/", line)
        assert match, line
        path[len(match[1]) // 4 :] = [match[2]]
        found.add("/".join(path))
    return found


def test_the_tree_has_every_folder_and_no_other() -> None:
    packages = {path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py")} - {Path()}
    # What Django prescribes is Django's, and is not drawn.
    drawn = {str(path) for path in packages if not {"management", "migrations"} & set(path.parts)}
    assert folders_of_the_page() == drawn


def test_the_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert LAYERS.code.splitlines() == layers


def named_files() -> list[str]:
    """Every file that the page names with its folder."""
    return sorted({name for name in re.findall(rf"`({FILE})`", PAGE) if "/" in name and "NAME" not in name})


@pytest.mark.parametrize("name", named_files())
def test_a_file_that_is_named_is_there(name: str) -> None:
    assert ((ROOT if name.startswith(IN_OTHER_FOLDERS) else SOURCE) / name).is_file()


def named_functions() -> list[tuple[str, str]]:
    """Every function that the page names behind its file."""
    return re.findall(rf"`({FILE})` `([\w.]+)`", PAGE)


@pytest.mark.parametrize(("name", "function"), named_functions())
def test_a_function_that_is_named_is_in_its_file(name: str, function: str) -> None:
    tree: ast.AST = ast.parse((SOURCE / name).read_text())
    for part in function.split("."):
        inside = [node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == part]
        assert inside, f"{name} has no {function}"
        tree = inside[0]


def test_the_walk_names_functions() -> None:
    assert len(named_functions()) > 15
