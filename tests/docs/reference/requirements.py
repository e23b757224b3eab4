"""requirements.md: what Postroom was asked to do, and the tests that show it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.docs.reference.made import page, table
from tests.docs.requirements import DOCUMENTS, NOT_YET, REQUIREMENTS, WORDS

ROOT = Path(__file__).parents[3]
TESTS, CONTRACTS = ROOT / "tests", ROOT / "src/postroom/testing/contracts"
ABOUT = """
Five documents, A to E, describe a reliable outbox, each from another side. Postroom is one system that does what they ask
for. A line here is one of their requirements, in our words, with the tests that show it. A test says so itself, by
`@pytest.mark.requirement("B7")`. *Part* means that something is missing, and says what. *Not yet* means that nothing shows
it.
"""
ABOUT_WORDS = "The documents use other words for the same things. [The glossary](glossary.md) says what our words mean."


class Shown(NamedTuple):
    """A test, or a class of tests, that says which requirement it shows."""

    requirement: str
    file: Path
    test: str


@cache
def shown() -> tuple[Shown, ...]:
    """Every mark in the tests. They are read, not imported."""
    return tuple(found for file in sorted(TESTS.rglob("test_*.py")) for found in marks_in(file))


def marks_in(file: Path) -> Iterator[Shown]:
    """The marks of one file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in (name for decorator in node.decorator_list for name in _named(decorator)):
                yield Shown(name, file, node.name)


def _named(decorator: ast.expr) -> list[str]:
    """The requirements that a decorator names."""
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.requirement":
        return []
    return [str(ast.literal_eval(argument)) for argument in decorator.args]


@cache
def cases() -> dict[str, Path]:
    """Each case of a contract, and the file that it stands in."""
    trees = {file: ast.parse(file.read_text()) for file in sorted(CONTRACTS.glob("*.py"))}
    return {
        node.name: file
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
    }


def showing(requirement: str) -> list[Shown]:
    """What shows it: the tests with its mark, in the order of the files, then the cases that the table names."""
    named = [Shown(requirement, cases()[name], name) for name in REQUIREMENTS[requirement].cases]
    return sorted(each for each in shown() if each.requirement == requirement) + named


def page_of_requirements() -> str:
    """The requirements of each document, and the words of the documents beside ours."""
    parts = []
    for letter, title in DOCUMENTS.items():
        rows = [[name, wanted.line, _state(name)] for name, wanted in REQUIREMENTS.items() if name[0] == letter]
        parts += [f"## {letter}. {title}", table([["", "what must hold", "shown by"], *rows])]
    words = table([["there", "here", "meaning"], *WORDS])
    return page("Requirements", ABOUT, *parts, "## Their words and ours", ABOUT_WORDS, words)


def _state(name: str) -> str:
    """The tests of a requirement, behind what is missing."""
    missing = REQUIREMENTS[name].missing
    if missing == NOT_YET:
        return NOT_YET
    links = ", ".join(f"[{each.test}]({_way(each.file)})" for each in showing(name))
    return f"part: {missing}. {links}" if missing else links


def _way(file: Path) -> str:
    return Path(os.path.relpath(file, ROOT / "docs/reference")).as_posix()
