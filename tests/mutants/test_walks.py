"""Random walks in virtual time: whatever happens to the relays, once all works again everything was delivered, in order, and
nothing came again but for a fault; and no relay ever sent what it did not hold.

A failing test's name ends in its seed."""

from __future__ import annotations

from types import ModuleType

import pytest
from tests.mutants import virtual
from tests.mutants.loader import changed
from tests.mutants.table import MUTANTS
from tests.mutants.walk import Walk
from tests.mutants.world import World
from tests.proof.lengths import WALKS

import postroom.relay

WALKED_INTO = ("R9", "R13", "R16", "R17", "R18", "R19", "R21", "R22")
"""Rules of which at least one mutant is met on a random walk, without a scene made for it."""


def walk(relay: ModuleType, seed: int) -> Walk:
    walks: list[Walk] = []

    async def scene() -> None:
        world = World(relay, lanes=4)
        walks.append(Walk(world, seed))
        try:
            await walks[0].go()
        finally:
            world.look_for_the_broken()

    virtual.run(scene)
    return walks[0]


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_random_walk_keeps_every_promise(seed: int) -> None:
    walked = walk(postroom.relay, seed)
    assert min(walked.done[what] for what in ("put", "shut", "lose", "turn")) > 0, "the weather was too good"
    assert len(walked.world.journal) > len(walked.world.records()), "nothing ever came twice: no fault hit"


@pytest.mark.parametrize("rule", WALKED_INTO)
def test_a_relay_without_a_rule_stumbles_on_a_random_walk(rule: str) -> None:
    def stumbles(seed: int, relay: ModuleType) -> bool:
        try:
            walk(relay, seed)
        except AssertionError:
            return True
        return False

    for mutant in (mutant for mutant in MUTANTS if mutant.rule == rule):
        with changed(mutant.changes) as relay:
            # It ends with the first that stumbles; some rules are missed only once in ten walks.
            if any(stumbles(seed, relay) for seed in range(4 * WALKS)):
                return
    pytest.fail(f"no relay without {rule} stumbled")


def test_the_same_seed_takes_the_same_way() -> None:
    assert walk(postroom.relay, 1).world.journal == walk(postroom.relay, 1).world.journal
