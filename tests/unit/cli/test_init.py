from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.unit.cli.running import Desk

from postroom.stores.sqlite.doctor import has_wal_reset_defect


def test_init_creates_the_tables_and_says_so(empty: Desk) -> None:
    made = empty("init")
    assert made.code == 0
    assert made.out == "Created the tables in sqlite:///shop.db, at version 1, with 64 lanes.\n"
    assert empty.count == 0


def test_a_second_init_has_nothing_to_do(desk: Desk) -> None:
    again = desk("init")
    assert again.code == 0
    assert again.out == "Nothing to do: the tables in sqlite:///shop.db are at version 1, with 64 lanes.\n"


def test_lanes_prefix_and_a_store_given_as_an_option(empty: Desk) -> None:
    made = empty("init", "--store", "sqlite:///other.db", "--lanes", "16", "--table-prefix", "post", store=None)
    assert "sqlite:///other.db, at version 1, with 16 lanes" in made.out
    assert empty("init", "--store", "sqlite:///other.db", "--table-prefix", "post", store=None).out.endswith(
        "with 16 lanes.\n"
    )
    assert (
        empty(
            "put", "a.b", "--store", "sqlite:///other.db", "--table-prefix", "post", store=None, POSTROOM_DEBUG="1"
        ).code
        == 0
    )


def test_the_note_on_an_old_sqlite_is_one_line_and_shown_by_init_alone(empty: Desk) -> None:
    notes = empty("init").err.splitlines()
    assert len(notes) == (1 if has_wal_reset_defect() else 0)
    assert all(note.startswith("note: SQLite ") for note in notes)
    assert empty("status").err == ""


def test_another_number_of_lanes_is_refused_on_tables_that_are_there(desk: Desk) -> None:
    desk("init", "--lanes", "8").refuses("64 lanes, not the 8", code=1)


@pytest.mark.parametrize(("lanes", "said"), [("0", "from 1 to 1,024"), ("many", "valid integer")])
def test_a_number_of_lanes_that_is_none_is_wrong_use(empty: Desk, lanes: str, said: str) -> None:
    empty("init", "--lanes", lanes).refuses(said, code=2)
    assert list(empty.folder.iterdir()) == []


def test_a_prefix_that_is_no_identifier_is_wrong_use(empty: Desk) -> None:
    empty("init", "--table-prefix", "x; DROP TABLE y").refuses("not an identifier", code=2)
    assert list(empty.folder.iterdir()) == []


def test_a_schema_name_is_refused_by_sqlite(empty: Desk) -> None:
    empty("init", "--schema", "shop").refuses("SQLite has no schemas", code=2)


def test_a_folder_that_is_not_there_is_said(empty: Desk) -> None:
    empty("init", store="sqlite:///nowhere/shop.db").refuses("nowhere/shop.db", "folder", code=1)


def test_a_file_that_is_no_database_is_said(empty: Desk) -> None:
    (empty.folder / "shop.db").write_text("hello " * 1000)
    empty("init").refuses("not a healthy SQLite database", code=1)


def test_programs_are_told_in_json_what_was_made(empty: Desk) -> None:
    (made,) = empty("init", "--json", "--lanes", "8").objects()
    assert (made["before"], made["lanes"]) == (0, 8)
    assert made["after"] == len(made["applied"]) > 0
    assert empty("init", "--json").objects() == [
        {"before": made["after"], "after": made["after"], "applied": [], "lanes": 8}
    ]


def test_the_statements_that_make_the_tables_can_be_printed_and_run_elsewhere(empty: Desk) -> None:
    printed = empty("init", "--sql", "--lanes", "8")
    assert printed.code == 0
    assert not (empty.folder / "shop.db").exists(), "nothing is changed"
    with closing(sqlite3.connect(empty.folder / "shop.db")) as connection:
        connection.executescript(printed.out)
    assert "at version 1, with 8 lanes" in empty("init").out
    assert empty("put", "order.paid").code == 0


def test_rights_are_printed_for_servers_alone(empty: Desk) -> None:
    printed = empty("init", "--grants", "--store", "postgresql+asyncpg://app@db/shop", "--schema", "mail", store=None)
    assert 'GRANT USAGE ON SCHEMA "mail" TO postroom_relay;' in printed.out
    assert 'GRANT INSERT ON "mail"."outbox" TO postroom_service;' in printed.out
    empty("init", "--grants").refuses("has no rights to grant", code=2)
    empty("init", "--sql", store="mongodb://db/shop").refuses("has no statements to print", code=2)
