"""Every rule that the relay keeps is needed: take one out, and a named scene fails."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from tests.mutants import virtual
from tests.mutants.loader import changed
from tests.mutants.scenes import LANES, scenes
from tests.mutants.table import MUTANTS, Mutant
from tests.mutants.world import World

import postroom.relay
from postroom.stores.memory.outbox import MemoryOutbox


def play(name: str, relay: ModuleType, outbox: type[MemoryOutbox] = MemoryOutbox) -> None:
    async def scene() -> None:
        world = World(relay, outbox, lanes=LANES.get(name, 1))
        try:
            await scenes()[name](world)
        finally:
            world.look_for_the_broken()

    virtual.run(scene)


@pytest.mark.parametrize("name", scenes())
def test_an_honest_relay_plays_the_scene_through(name: str) -> None:
    play(name, postroom.relay)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_relay_without_the_rule_is_caught(mutant: Mutant) -> None:
    with changed(mutant.changes) as relay, pytest.raises(AssertionError) as caught:
        play(mutant.caught_by, relay, mutant.outbox)
    print(f"{mutant}: {caught.value}")


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.outbox is not MemoryOutbox], ids=str)
def test_an_honest_relay_does_not_need_the_stores_second_guard(mutant: Mutant) -> None:
    """Two rules guard the same thing: the relay's is enough in this scene."""
    play(mutant.caught_by, postroom.relay, mutant.outbox)


def test_the_honest_relay_is_back_after_a_mutant() -> None:
    honest = postroom.relay
    with changed(MUTANTS[0].changes) as relay:
        assert relay is not honest
    assert importlib.import_module("postroom.relay") is honest is postroom.relay
