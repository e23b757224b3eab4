from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.running import Desk

COMMANDS = [["init"], ["put", "a.b"], ["status"], ["list"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_store_the_three_ways_to_name_one_are_said(empty: Desk, command: list[str]) -> None:
    empty(*command, store=None).refuses("--store URL", "POSTROOM_STORE", "postroom.toml", code=2)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_of_an_unknown_kind_is_refused_without_its_password(empty: Desk, command: list[str]) -> None:
    refused = empty(*command, "--store", "oracle://app:s3cr3t@db/shop")
    refused.refuses("no store oracle://", "sqlite:///shop.db", code=2)
    assert "s3cr3t" not in refused.err
    empty(*command, "--store", "shop.db").refuses("must start with a scheme", code=2)
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS[1:], ids=" ".join)
def test_a_mistyped_file_is_refused_and_not_made(empty: Desk, command: list[str]) -> None:
    empty(*command).refuses("no file shop.db", "postroom init --store sqlite:///shop.db", code=1)
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS[1:], ids=" ".join)
def test_missing_tables_are_said_with_the_command_to_type(empty: Desk, command: list[str]) -> None:
    (empty.folder / "shop.db").touch()
    empty(*command).refuses("not in sqlite:///shop.db", "`postroom init --store sqlite:///shop.db`", code=1)


@pytest.mark.parametrize("command", [["init"], ["put", "a.b"], ["requeue", "--status", "dead"]], ids=" ".join)
def test_tables_of_a_later_postroom_are_not_written_to(desk: Desk, command: list[str]) -> None:
    desk.execute("UPDATE outbox_schema SET version = 99 WHERE version = 1")
    desk(*command).refuses("version 99", "pip install --upgrade postroom", code=1)
    assert desk.count == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_prefix_that_is_no_identifier_is_refused(desk: Desk, command: list[str]) -> None:
    desk(*command, "--table-prefix", 'x"; --').refuses("not an identifier", code=2)


def test_the_store_comes_from_postroom_toml_or_another_file(empty: Desk) -> None:
    (empty.folder / "postroom.toml").write_text('store = "sqlite:///a.db"\n[tables]\nprefix = "post"\n')
    (empty.folder / "other.toml").write_text('store = "sqlite:///b.db"\n')
    assert "a.db" in empty("init", store=None).out
    assert "b.db" in empty("init", "--config", "other.toml", store=None).out
    assert "shop.db" in empty("init").out
    assert "c.db" in empty("init", "--store", "sqlite:///c.db").out


@pytest.mark.parametrize(
    ("toml", "said"),
    [("store = ", "is not TOML"), ("stroe = 'x'", "did you mean store"), ("store = 7", "must be text")],
)
def test_a_wrong_settings_file_is_named(empty: Desk, toml: str, said: str) -> None:
    (empty.folder / "postroom.toml").write_text(toml)
    empty("status", store=None).refuses("postroom.toml", said, code=2)
    empty("status", "--config", "nowhere.toml", store=None).refuses("nowhere.toml cannot be read", code=2)


def test_a_wrong_setting_in_the_environment_is_named(desk: Desk) -> None:
    desk("status", POSTROOM_BATCH="many").refuses("POSTROOM_BATCH", code=2)


def test_a_driver_that_is_not_installed_is_said_with_its_extra(empty: Desk, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for driver in ("psycopg", "psycopg_pool"):
        (blocked / f"{driver}.py").write_text("raise ModuleNotFoundError('No module named psycopg', name='psycopg')")
    refused = empty("status", store="postgresql://app:s3cr3t@db/shop", PYTHONPATH=str(blocked))
    refused.refuses("pip install 'postroom[postgres]'", code=1)
    assert "s3cr3t" not in refused.err


def test_a_store_in_memory_is_noted_as_gone_at_the_end(empty: Desk) -> None:
    put = empty("put", "a.b", store="memory://")
    assert put.code == 0
    assert put.err == "note: memory:// is empty now, and gone when this command ends.\n"
