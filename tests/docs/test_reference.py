"""The pages that are made from the code say what the code declares today, and nothing is left out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.docs.reference import FOLDER, PAGES, columns
from tests.docs.reference.errors import codes_made, told_by
from tests.docs.reference.tables import STORES, tables_of
from tests.docs.running import a_shop

from postroom.codes import CODES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_from_the_code_is_up_to_date(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text() == PAGES[name](), "run `python -m tests.docs.reference`"


def test_every_code_that_is_told_has_a_meaning() -> None:
    assert len(codes_made()) > 40
    assert codes_made() - set(CODES) == set()


@pytest.mark.parametrize("code", CODES)
def test_a_code_with_a_meaning_is_told_by_something(code: str) -> None:
    assert told_by(code)


@pytest.mark.parametrize("table", columns.TABLES)
def test_every_column_has_a_meaning_and_every_meaning_a_column(table: str) -> None:
    found = {column for store in STORES for column in tables_of(store)[table]}
    assert found == set(columns.TABLES[table])


@pytest.mark.requirement("B1")
def test_the_view_and_the_tables_are_those_of_a_real_database(tmp_path: Path) -> None:
    a_shop(tmp_path)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        found = {name: _columns_of(shop, name) for name in (*columns.TABLES, "outbox_messages")}
    assert {name: found[name] for name in columns.TABLES} == {name: set(c) for name, c in tables_of("sqlite").items()}
    assert found["outbox_messages"] - found["outbox"] == set(columns.MESSAGES)


def _columns_of(shop: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in shop.execute(f"PRAGMA table_xinfo({table})")}
