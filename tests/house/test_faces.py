"""Rules live in `ops/`: the command line and the integrations draw what it says, and ask it to do what a person wants.

Nobody else calls what a store has for people. So there is one place that knows who is alive, what may be requeued, and what to
do about an error, whatever shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/postroom"
FACES = [*sorted((SOURCE / "cli").glob("*.py")), *sorted((SOURCE / "integrations").rglob("*.py"))]
"""Besides them `ops` alone talks to a store for a person. `postroom bench` and `postroom demo` do so for themselves."""
FOR_PEOPLE = {"counts", "find", "ids_between", "requeue", "discard", "all", "relays"}
"""What a person asks and does, by the name of the store's method."""
ALLOWED = {
    ("init.py", "all"): "it says how many lanes the new tables have",
    ("inbox.py", "counts"): "it shows how many deliveries are in each state, and there is no rule in that",
}
OWN = {"integrations/django/inbox.py"}
"""Stores themselves: they pass the calls on to another one."""


def calls(path: Path) -> Iterator[str]:
    """The names of the methods that are awaited in this file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Await)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        ):
            yield node.value.func.attr


@pytest.mark.parametrize("path", FACES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_face_asks_ops_and_not_the_store(path: Path) -> None:
    if str(path.relative_to(SOURCE)) in OWN:
        return
    asked = {name for name in calls(path) if name in FOR_PEOPLE and (path.name, name) not in ALLOWED}
    assert not asked, f"{path.name} asks a store for {', '.join(sorted(asked))}: use postroom.ops"


def test_what_is_allowed_is_needed() -> None:
    found = {(path.name, name) for path in FACES for name in calls(path)}
    assert ALLOWED.keys() <= found


def test_the_names_are_those_of_the_contracts() -> None:
    contracts = "".join(path.read_text() for path in (SOURCE / "contracts").glob("*.py"))
    assert {name for name in FOR_PEOPLE if f"async def {name}(" in contracts} == FOR_PEOPLE
