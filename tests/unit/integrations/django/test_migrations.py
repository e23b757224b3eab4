"""`manage.py migrate` and `postroom init` make the same tables, and each finds what the other has made."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.integrations.django.projects import Project, database
from tests.unit.stores.catalogues import catalogue
from tests.unit.stores.homes import Home, drop_tables

from postroom import Message, Outbox
from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.integrations import django
from postroom.stores.sql.migrations import newest

VERSIONS = "SELECT version, name FROM outbox_schema ORDER BY version"


async def test_migrate_makes_the_very_tables_that_init_makes(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
    made, versions, lanes = catalogue(home), home.sql(VERSIONS), home.sql("SELECT count(*) FROM outbox_lane")
    await drop_tables(home.url, TableNames())
    assert not catalogue(home)

    project = Project.on(home.url)
    project.done("migrate", "postroom")

    assert catalogue(home) == made
    assert home.sql(VERSIONS) == versions
    assert home.sql("SELECT count(*) FROM outbox_lane") == lanes
    async with home.open() as store:
        await store.schema.check()
        assert (await store.schema.migrate()).applied == []


async def test_migrate_after_init_changes_nothing_and_keeps_what_was_put(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        async with store.outbox.transaction() as tx:
            await Outbox().put(tx, Message("order.placed", key="order-7"))
        before = catalogue(home)
        Project.on(home.url).done("migrate", "postroom")
        assert catalogue(home) == before
        assert [record.message.key for record in await store.ops.find(Query())] == ["order-7"]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mysql"])
def test_the_newest_tables_have_a_migration_of_djangos(dialect: str) -> None:
    """Whoever adds a numbered file of SQL adds one for Django too, or its users would be told that all is done."""
    folder = Path(django.__file__).parent / "migrations"
    brought = [
        int(number) for file in folder.glob("0*.py") for number in re.findall(r"version=(\d+)", file.read_text())
    ]
    assert max(brought) == newest(f"postroom.stores.{dialect}")


def test_django_sees_no_change_that_a_migration_lacks(small: Project) -> None:
    for prefix in ("outbox", "mail"):
        small.postroom = {"TABLE_PREFIX": prefix}
        assert small.done("makemigrations", "--check", "--dry-run") == "No changes detected\n"


def test_the_router_says_in_which_database_the_tables_are(tmp_path: Path) -> None:
    files = {"default": tmp_path / "shop.db", "post": tmp_path / "post.db"}
    databases = {alias: database(f"sqlite:///{file}") for alias, file in files.items()}
    project = Project(databases, routers=["shop.routers.OnlyPost"])
    for alias in databases:
        project.migrate(alias)
    assert {alias for alias, file in files.items() if "outbox" in tables_in(file)} == {"post"}
    assert "shop_order" in tables_in(files["default"])
    found, refused = project.several("postroom status --json --database post", "postroom status")
    assert '"pending": 0' in found.stdout
    assert refused.returncode == 1
    assert "`manage.py migrate postroom`" in refused.stderr


def test_a_table_of_somebody_else_is_left_alone_until_another_name_is_chosen(small: Project, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE outbox (letter TEXT)")
    refused = small.manage("migrate", "postroom")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "that Postroom did not make" in refused.stderr
    assert '`POSTROOM = {"TABLE_PREFIX": "postroom"}`' in refused.stderr

    small.postroom = {"TABLE_PREFIX": "postroom"}
    small.migrate()
    assert {"postroom", "postroom_lane", "postroom_inbox", "outbox"} <= tables_in(tmp_path / "shop.db")
    small.done("postroom", "put", "order.placed")
    assert small.python("from postroom.integrations.django.models import *\nprint(OutboxMessage.objects.get())")


def test_the_tables_go_again_but_not_with_a_message_that_nobody_received(project: Project, home: Home) -> None:
    put, refused = project.several("postroom put order.placed", "migrate postroom zero")
    assert refused.returncode == 1
    assert "holds 1 message still to be delivered" in refused.stderr
    discarded, gone = project.several(f"postroom discard --yes {put.stdout.strip()}", "migrate postroom zero")
    assert (discarded.returncode, gone.returncode) == (0, 0), gone.stderr
    assert catalogue(home) == {}
    made, status = project.several("migrate postroom", "postroom status --json")
    assert made.returncode == 0
    assert '"discarded": 0' in status.stdout


def test_the_tables_stay_while_the_inbox_remembers_something(small: Project, tmp_path: Path) -> None:
    small.migrate()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("INSERT INTO inbox VALUES ('billing', 'shop', 'a', 'handled', 1, 1, NULL, NULL)")
    assert "The inbox remembers 1 message" in small.manage("migrate", "postroom", "zero").stderr
    assert "inbox" in tables_in(tmp_path / "shop.db")


def test_the_sql_can_be_read_before_it_is_run(project: Project) -> None:
    forwards, backwards = project.several("sqlmigrate postroom 0001", "sqlmigrate postroom 0001 --backwards")
    assert "CREATE TABLE" in forwards.stdout
    assert "DROP TABLE" in backwards.stdout


def test_a_users_test_case_sees_what_is_put(small: Project) -> None:
    """In a database of tests, which is in memory, and in a transaction that never commits."""
    said = small.manage("test", "shop")
    assert said.returncode == 0, said.stderr
    assert "Ran 2 tests" in said.stderr


def tables_in(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
