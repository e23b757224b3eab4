"""The inbox's contract is tested too: a database that breaks a promise is caught by the case that is there for it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.inbox.desks import sqlite_desk

from postroom.config.tables import TableNames
from postroom.stores.sqlite import SQLiteStore
from postroom.stores.sqlite.inbox import SQLiteInbox
from postroom.stores.sqlite.statements import INBOX_FILES, Statements
from postroom.testing.contracts import InboxContract
from postroom.testing.saboteurs.inbox import InboxSaboteur, all_inbox_saboteurs


def cases() -> dict[str, Callable[..., Awaitable[None]]]:
    return {name: case for name, case in inspect.getmembers(InboxContract) if name.startswith("test_")}


async def run(name: str, folder: Path, kind: type[SQLiteInbox]) -> None:
    """Run one case, with each of its parameters if it has any: each on a database of its own."""
    case: Any = cases()[name]
    marks = [mark for mark in getattr(case, "pytestmark", []) if mark.name == "parametrize"]
    given = [{mark.args[0]: value} for mark in marks for value in mark.args[1]] or [{}]
    for number, arguments in enumerate(given):
        file = folder / f"shop{number}.db"
        async with sqlite_desk(file) as desk, SQLiteStore(file) as store:
            store.inbox = kind(store._writer, Statements(TableNames(), INBOX_FILES))
            desk.opened, desk.store = store, store.inbox
            await case(InboxContract(), desk, **arguments)


@pytest.mark.parametrize("saboteur", all_inbox_saboteurs(), ids=lambda saboteur: saboteur.__name__)
async def test_every_saboteur_is_caught_by_its_case(saboteur: type[InboxSaboteur], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await run(saboteur.caught_by, tmp_path, saboteur)


@pytest.mark.parametrize("name", sorted({saboteur.caught_by for saboteur in all_inbox_saboteurs()}))
async def test_the_same_case_passes_without_the_sabotage(name: str, tmp_path: Path) -> None:
    await run(name, tmp_path, SQLiteInbox)
