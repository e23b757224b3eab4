"""`manage.py postroom`: the whole command line on the database of the settings."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.integrations.django.projects import Project, database

TAKE = "local://shop.handlers:take"


def test_a_relay_carries_what_was_put_to_a_function_that_uses_the_orm(project: Project) -> None:
    put, relay, status, listed, doctor = project.several(
        "postroom put order.placed --key order-7",
        f"postroom relay --to {TAKE} --drain",
        "postroom status --json",
        "postroom list",
        "postroom doctor",
    )
    assert (put.returncode, relay.returncode) == (0, 0), relay.stderr
    assert "1 published" in relay.stdout
    found = json.loads(status.stdout)
    assert (found["pending"], found["published"], found["dead"]) == (0, 1, 0)
    assert "order-7" in listed.stdout
    assert doctor.stdout.startswith("store ")
    assert project.python("from shop.models import Order\nprint(*Order.objects.all())") == "local order-7\n"


@pytest.fixture
def shop(small: Project) -> Project:
    """A small project, migrated."""
    small.migrate()
    return small


def test_where_messages_go_comes_from_the_settings(shop: Project, tmp_path: Path) -> None:
    put, nowhere = shop.several("postroom put order.placed --key one", "postroom relay --drain")
    assert (put.returncode, nowhere.returncode) == (0, 2)
    assert "Nowhere to go" in nowhere.stderr
    shop.postroom = {"TO": TAKE}
    assert "1 published" in shop.done("postroom", "relay", "--drain")

    (tmp_path / "shop.toml").write_text(f'[[routes]]\nname = "orders"\npattern = "order.*"\nto = "{TAKE}"\n')
    shop.postroom = {"CONFIG": str(tmp_path / "shop.toml")}
    put, relay = shop.several("postroom put order.placed --key two", "postroom relay --drain")
    assert (put.returncode, relay.returncode) == (0, 0)
    assert "orders: order.* to local://" in relay.stdout


def test_the_exit_code_is_the_command_lines(shop: Project) -> None:
    shop.python("from shop.models import Order\nOrder.objects.create(name='local one')")
    shop.done("postroom", "put", "order.placed", "--key", "one")
    assert shop.manage("postroom", "relay", "--to", TAKE, "--drain", "--max-attempts", "1").returncode == 3


def test_the_environment_does_not_lead_it_to_another_database(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_STORE", "sqlite:////nowhere/at/all.db")
    shop.done("postroom", "status")


@pytest.mark.parametrize("where", [["--database", "other"], ["--database=other"]])
def test_another_database_is_named_before_or_behind_the_command(tmp_path: Path, where: list[str]) -> None:
    databases = {name: database(f"sqlite:///{tmp_path / name}.db") for name in ("default", "other")}
    project = Project(databases)
    project.done("migrate", "postroom", "-v0", "--database", "other")
    (id_,) = project.done("postroom", "put", "order.placed", *where).split()
    assert id_ in project.done("postroom", *where, "list", "--json")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def test_errors_are_sentences_that_name_what_to_type_here(small: Project) -> None:
    unmade = small.manage("postroom", "status")
    assert unmade.returncode == 1
    assert "run `manage.py migrate postroom`" in unmade.stderr
    unknown = small.manage("postroom", "status", "--database", "nowhere")
    assert unknown.returncode == 2
    assert "DATABASES has no 'nowhere'; there are default." in unknown.stderr
    wrong = small.manage("postroom", "stauts")
    assert wrong.returncode == 2
    assert "Try `manage.py postroom --help`" in wrong.stderr
    small.postroom = {"TABLES": "mail"}
    unset = small.manage("postroom", "status")
    assert unset.returncode != 0
    assert "POSTROOM has no setting 'TABLES'; there are TO, CONFIG, TABLE_PREFIX, WAKE." in unset.stderr


def test_a_password_is_never_printed(postgres_locked_url: str) -> None:
    project = Project.on(postgres_locked_url)
    password = project.databases["default"]["PASSWORD"]
    assert password
    said = project.manage("postroom", "status")
    wrong = Project({"default": {**project.databases["default"], "PASSWORD": "wr0ng/p@ss"}}).manage(
        "postroom", "status"
    )
    for each in (said, wrong):
        assert each.returncode == 1
        assert "Traceback" not in each.stderr
        assert password not in each.stdout + each.stderr
        assert "wr0ng" not in each.stdout + each.stderr
    assert "`manage.py migrate postroom`" in said.stderr
