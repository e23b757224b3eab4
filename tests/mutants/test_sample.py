"""The sample of mutants finds places, changes what it says, and draws the same again. No mutant is run here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.mutants import sample
from tests.mutants.chosen import NEVER, PARTS, part_of
from tests.mutants.places import SOURCE, Place, places
from tests.mutants.sample import EQUAL, KILLED, SURVIVED, TIMED_OUT, Copy, Verdict

CHANGES = [
    ("comparison", "x = a < b", "x = (a <= b)"),
    ("comparison", "x = (a or b) == c", "x = ((a or b) != c)"),
    ("comparison", "x = a not in b", "x = (a in b)"),
    ("negation", "if a or b:\n    c = d", "if (not (a or b)):\n    c = d"),
    ("negation", "while (a := b()):\n    c = d", "while ((not (a := b()))):\n    c = d"),
    ("dropped not", "x = not a", "x = a"),
    ("and/or", "x = a and b or c", "x = ((a and b) and c)"),
    ("and/or", "x = a and b or c", "x = (a or b) or c"),
    ("int + 1", "x = f(3)", "x = f(4)"),
    ("flipped bool", "def f(a: bool = True): ...", "def f(a: bool = False): ..."),
    ("dropped call", "f(g(a))", "pass"),
    ("dropped call", "async def f():\n    await g()", "async def f():\n    pass"),
    ("dropped raise", "if a:\n    raise b from c", "if a:\n    pass"),
    ("return None", "def f():\n    return a, b", "def f():\n    return None"),
    ("swapped branches", "x = a if b else c", "x = (c if b else a)"),
    ("int + 1", 'x = "ä", 1', 'x = "ä", 2'),
]

NOT_SEEN = [
    '"""A docstring."""',
    "__slots__ = f(1)",
    "if TYPE_CHECKING:\n    f(1)",
    "x: Literal[1]",
    "def f(a: Literal[1]) -> Literal[True]: ...",
    "def f():\n    return None",
    "@dataclass(frozen=True)\nclass A: ...",
]


def found_in(folder: Path, text: str) -> tuple[bytes, list[Place]]:
    (folder / "some.py").write_text(text)
    return text.encode(), places(folder / "some.py", folder)


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES)
def test_each_kind_of_change(kind: str, before: str, after: str, tmp_path: Path) -> None:
    source, found = found_in(tmp_path, before)
    assert after in {place.applied_to(source).decode() for place in found if place.kind == kind}


@pytest.mark.parametrize("text", NOT_SEEN)
def test_what_no_test_can_see_is_left_alone(text: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, text)[1] == []


def test_a_place_is_named_by_its_scope_and_its_lines_wherever_they_move_to(tmp_path: Path) -> None:
    text = "class A:\n    def f(self):\n        return self.a\n"
    (place,), (moved,) = found_in(tmp_path, text)[1], found_in(tmp_path, f"# a line more\n{text}")[1]
    assert (place.line, moved.line) == (3, 4)
    assert place.key == moved.key == "some.py | A.f | return self.a => return None"


def test_a_change_of_the_source_is_python_and_another_program() -> None:
    for places_of_a_part in sample.candidates().values():
        for place in places_of_a_part[::50]:
            source = (SOURCE / place.file).read_bytes()
            assert ast.dump(ast.parse(place.applied_to(source))) != ast.dump(ast.parse(source)), str(place)


def test_a_seed_draws_the_same_again_and_a_larger_sample_begins_with_the_smaller() -> None:
    first = sample.drawn("7", 40)
    assert sample.drawn("7", 60)[:40] == first
    assert sample.drawn("8", 40) != first
    assert {part.name for part, _ in first} == {part.name for part in PARTS}, "each part is drawn from"


def test_a_part_alone_begins_as_it_does_among_the_others() -> None:
    mine = [place for part, place in sample.drawn("7", 60) if part.name == "relay"]
    assert [place for _, place in sample.drawn("7", len(mine), ["relay"])] == mine


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("relay/relay.py", "relay"),
        ("stores/sqlite/claim.py", "stores/sqlite"),
        ("stores/rows.py", "stores, shared"),
        ("message.py", "config and values"),
    ],
)
def test_a_file_belongs_to_the_part_that_is_nearest(file: str, name: str) -> None:
    part = part_of(file)
    assert part is not None
    assert part.name == name


def test_no_mutants_are_drawn_from_the_test_kit() -> None:
    assert part_of("testing/journal.py") is None


def test_the_tests_that_are_chosen_exist() -> None:
    chosen = [test for part in PARTS for test in (*part.first, *part.then)]
    paths = [path for test in (*chosen, *NEVER) for path in sample.files([test])]
    assert {path for path in paths if not (sample.ROOT / path.partition("::")[0]).exists()} == set()


def test_each_equivalent_names_a_place_and_says_why() -> None:
    known = {place.key for found in sample.candidates().values() for place in found}
    assert sample.equivalents() - known == set(), "the line was moved or reworded: judge it again"
    lines = [line for line in sample.EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    assert all(line.startswith(" ") for line in lines[1::2])
    assert len(lines) == 2 * len(sample.equivalents())


def test_a_copy_is_changed_and_the_working_tree_is_not(tmp_path: Path) -> None:
    before = (SOURCE / "clock.py").read_bytes()
    copy = Copy.under(str(tmp_path))
    copied = copy.root / "src" / "postroom" / "clock.py"
    assert copied.read_bytes() == before
    compiled = copied.parent / "__pycache__" / "clock.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.touch()
    copy.write("clock.py", b"changed")
    assert copied.read_bytes() == b"changed"
    assert not compiled.exists()
    assert (SOURCE / "clock.py").read_bytes() == before


def test_the_rate_leaves_out_equivalents_and_counts_a_time_limit_as_killed() -> None:
    (part, place), *_ = sample.drawn("7", 1)
    verdicts = [Verdict(part.name, place, word) for word in (KILLED, TIMED_OUT, KILLED, SURVIVED, EQUAL, EQUAL)]
    assert sample.rate(verdicts) == 0.75
    assert list(sample.summary(verdicts, left=2)) == [
        "  relay                     3 killed (1 by time), 1 survived, 2 equivalent: 75%",
        "6 mutants: 3 killed (1 by time), 1 survived, 2 equivalent: 75%; no time was left for 2",
    ]


@pytest.mark.parametrize(("killed", "fewest", "code"), [(92, 1, 0), (91, 1, 1), (91, 101, 0)])
def test_fewer_than_92_of_100_is_a_failure(
    killed: int, fewest: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part, place), *_ = sample.drawn("7", 1)
    words = [KILLED] * killed + [SURVIVED] * (100 - killed)
    monkeypatch.setattr(sample, "sample", lambda *_: [Verdict(part.name, place, word) for word in words])
    assert sample.main(["--seed", "7", "--fewest", str(fewest)]) == code
