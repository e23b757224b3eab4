"""The contracts are tested too: every store that breaks a promise is caught by the case that is there for it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from postroom.contracts.store import Store
from postroom.stores.memory import MemoryStore
from postroom.testing.contracts import StoreContract, watch
from postroom.testing.saboteurs import all_saboteurs
from postroom.testing.saboteurs.outbox import Saboteur


def cases() -> dict[str, Callable[..., Awaitable[None]]]:
    return {name: case for name, case in inspect.getmembers(StoreContract) if name.startswith("test_")}


async def run(name: str, store: Store) -> None:
    """Run one case, with each of its parameters if it has any."""
    case = cases()[name]
    for arguments in _parameters(case):
        await case(StoreContract(), store, **arguments)


def _parameters(case: Any) -> Iterator[dict[str, Any]]:
    marks = [mark for mark in getattr(case, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        yield {}
    for mark in marks:
        name, values = mark.args
        for value in values:
            yield {name: value}


@pytest.mark.parametrize("saboteur", all_saboteurs(), ids=lambda saboteur: saboteur.__name__)
async def test_every_saboteur_is_caught_by_its_case(saboteur: type[Saboteur], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE_SECONDS", 1.0)  # who never says anything is a store in memory here
    with pytest.raises((AssertionError, pytest.fail.Exception, ValueError, KeyError)):
        await run(saboteur.caught_by, MemoryStore(saboteur()))


@pytest.mark.parametrize("name", sorted({saboteur.caught_by for saboteur in all_saboteurs()}))
async def test_the_same_case_passes_without_the_sabotage(name: str) -> None:
    case = cases()[name]
    for arguments in _parameters(case):
        await case(StoreContract(), MemoryStore(), **arguments)


def test_every_case_named_by_a_saboteur_exists() -> None:
    assert {saboteur.caught_by for saboteur in all_saboteurs()} <= set(cases())
