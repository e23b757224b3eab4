"""The judge of a run is tested like everything else: plant a fault in an honest run, and it names the message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroom.contracts.ops import Status
from postroom.testing.journal import Delivery, Name, Run, check

PUT = [Name(f"k{key}", number) for number in range(4) for key in range(3)]
HONEST = Run(put=PUT, journal=[Delivery(name, "r1") for name in PUT], found=dict.fromkeys(PUT, "published"))
A0, A1, A2, A3 = (Name("k0", number) for number in range(4))


def without(run: Run, *names: Name) -> Run:
    return replace(run, journal=[each for each in run.journal if each.name not in names])


def also(run: Run, name: Name, relay: str = "r2") -> Run:
    return replace(run, journal=[*run.journal, Delivery(name, relay)])


def ends(run: Run, **status: Status) -> Run:
    return replace(run, found={**run.found, **{Name("k0", int(place[1:])): each for place, each in status.items()}})


def swapped(run: Run) -> Run:
    """k0/1 and k0/2 change places in the journal."""
    other = {A1: A2, A2: A1}
    return replace(run, journal=[each._replace(name=other.get(each.name, each.name)) for each in run.journal])


def forgotten(run: Run) -> Run:
    return replace(run, found={name: status for name, status in run.found.items() if name != A1})


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (lambda run: without(run, A3), "k0/3 is lost: it is marked as published, but was not delivered."),
        (forgotten, "k0/1 is lost: it committed, and the database does not know it."),
        (lambda run: ends(without(run, A3), m3="pending"), "k0/3 is left behind: it is pending at the end"),
        (lambda run: ends(without(run, A3), m3="sending"), "k0/3 is left behind: it is sending at the end"),
        (lambda run: also(run, Name("k0", 99)), "k0/99 is a ghost: r2 delivered it"),
        (lambda run: ends(run, m99="pending"), "k0/99 is a ghost: it is in the database"),
        (swapped, "k0/2 came before k0/1, which was put earlier: r1 delivered it, line 4."),
        (lambda run: ends(without(run, A1), m1="dead"), "k0/2 came before k0/1, which was put earlier and never came."),
        (lambda run: also(run, A1), r"k0/1 came 2 times \(r1, r2\), and was in flight at 0 faults."),
        (
            lambda run: also(also(replace(run, faults={A1: 1}), A1), A1, "r3"),
            r"k0/1 came 3 times \(r1, r2, r3\), and was in flight at 1 faults.",
        ),
    ],
    ids=[
        "loss",
        "forgotten",
        "left open",
        "left in flight",
        "ghost delivered",
        "ghost in the database",
        "inversion",
        "a parked key went on",
        "duplicate without a fault",
        "duplicate beyond the bound",
    ],
)
def test_a_planted_fault_is_named(plant: Callable[[Run], Run], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check(plant(HONEST))


@pytest.mark.parametrize(
    "plant",
    [
        lambda run: run,
        lambda run: also(replace(run, faults={A1: 1}), A1),
        lambda run: also(also(replace(run, faults={A1: 1, A2: 1}), A1), A2),
        lambda run: ends(without(run, A1, A2, A3), m1="dead", m2="pending", m3="pending"),
        lambda run: ends(run, m3="dead"),
        lambda run: ends(without(run, A1), m1="discarded"),
        lambda run: ends(without(run, A1), m1="expired"),
        lambda run: replace(ends(without(run, A1), m1="dead"), park=False),
    ],
    ids=[
        "all went well",
        "came again for its fault",
        "only first deliveries are ordered",
        "dead, and its key behind it",
        "dead, and delivered all the same",
        "discarded",
        "expired",
        "dead, and skipped",
    ],
)
def test_what_is_allowed_passes(plant: Callable[[Run], Run]) -> None:
    check(plant(HONEST))


def test_many_faults_are_told_shortly() -> None:
    many = [Name("k", number) for number in range(100)]
    with pytest.raises(AssertionError, match="… and 80 more"):
        check(Run(put=many, journal=[], found=dict.fromkeys(many, "published")))
