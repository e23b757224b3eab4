"""Our tables in somebody's migrations: a real Alembic environment, in a folder of its own, as its user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.unit.integrations.sqla.conftest import DRIVERS, NAMES
from tests.unit.integrations.sqla.projects import Project
from tests.unit.stores.catalogues import catalogue
from tests.unit.stores.homes import Home, PostgresHome, SQLiteHome
from tests.unit.stores.test_schema import elsewhere
from tests.unit.stores.two_steps import in_two_steps

from postroom import Message, Outbox

pytestmark = pytest.mark.timeout(240)
INVOICES = 'sa.Table("invoices", metadata, sa.Column("id", sa.Integer, primary_key=True))\n'


def project_in(folder: Path, home: Home, more: str = "") -> Project:
    folder.mkdir()
    project = Project(folder, f"{DRIVERS[home.dialect]}://{home.url.partition('://')[2]}", NAMES[home.dialect])
    project.begin(more)
    return project


@pytest.fixture
def project(home: Home, tmp_path: Path) -> Project:
    return project_in(tmp_path / "project", home)


async def made_by_init(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()


async def test_autogenerate_makes_our_tables_by_our_own_migrations_and_then_leaves_them_alone(
    project: Project, home: Home, tmp_path: Path
) -> None:
    assert "upgrade_postroom" in project.alembic("check", code=255)
    project.alembic("revision", "--autogenerate", "-m", "first")
    first = project.migration("first")
    assert "postroom.upgrade(op, to=1)" in first
    assert "postroom.downgrade(op)" in first
    assert first.count("op.create_table") == 1, first
    project.alembic("upgrade", "head")

    with elsewhere(home, tmp_path) as beside:
        await made_by_init(beside)
        assert catalogue(home) == catalogue(beside)
    assert json.loads(project.postroom("status", "--json", "--store", home.url))["pending"] == 0
    assert "Nothing to do" in project.postroom("init", "--store", home.url)
    assert "No new upgrade operations" in project.alembic("check")

    with (project.folder / "models.py").open("a") as models:
        models.write(INVOICES)
    project.alembic("revision", "--autogenerate", "-m", "second")
    second = project.migration("second")
    body = [line.strip() for line in second.splitlines() if line.strip().startswith(("op.", "postroom."))]
    assert body == ["op.create_table('invoices',", "op.drop_table('invoices')"]
    project.alembic("upgrade", "head")

    project.alembic("downgrade", "base")
    assert home.sql("SELECT count(*) FROM alembic_version") == [(0,)]
    assert catalogue(home) == {}


async def test_where_init_was_first_a_migration_finds_nothing_to_do(project: Project, home: Home) -> None:
    await made_by_init(home)
    before = catalogue(home)
    project.write("postroom.upgrade(op, to=1)")
    project.alembic("upgrade", "head")
    assert catalogue(home) == before
    assert "upgrade_postroom" not in project.alembic("check", code=255), "only the orders are missing"


def test_a_downgrade_keeps_messages_that_were_not_delivered(project: Project, home: Home) -> None:
    project.knows_two_steps()
    project.write("postroom.upgrade(op, to=1)\n    postroom.upgrade(op, to=2, since=1)", "postroom.downgrade(op)")
    project.alembic("upgrade", "head")
    engine = sa.create_engine(project.url)
    with engine.begin() as connection:
        Outbox().put(connection, Message("order.paid", key="a", data=1))
    engine.dispose()
    assert "1 messages that were not delivered" in project.alembic("downgrade", "base", code=1)
    assert home.sql("SELECT count(*) FROM outbox") == [(1,)]
    assert home.sql("SELECT count(*) FROM outbox_schema") == [(2,)]


async def test_the_printed_sql_makes_the_same_tables(
    project: Project, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two_steps(monkeypatch)
    project.knows_two_steps()
    project.write("postroom.upgrade(op, to=1)\n    postroom.upgrade(op, to=2, since=1)", "postroom.downgrade(op)")
    if home.dialect == "mysql":  # without a server, the URL says which it is
        ini = project.folder / "alembic.ini"
        ini.write_text(ini.read_text().replace("mysql+pymysql://", "mariadb+pymysql://"))
    printed = project.run("-W", "ignore", "-m", "alembic", "upgrade", "head", "--sql")
    home.script(_sql_of(printed))
    with elsewhere(home, tmp_path) as beside:
        await made_by_init(beside)
        assert catalogue(home) == catalogue(beside)
    async with home.open() as store:
        assert list((await store.schema.migrate()).applied) == []
    assert "cannot check" in project.alembic("downgrade", "1:base", "--sql", code=1)
    project.write("postroom.upgrade(op, to=2)", "postroom.downgrade(op, lose_messages=True)")
    home.script(_sql_of(project.alembic("downgrade", "1:base", "--sql")))
    assert catalogue(home) == {}


def _sql_of(printed: str) -> str:
    """What stands in it beside the lines of its log."""
    return "\n".join(line for line in printed.splitlines() if not line.startswith(("INFO ", "-- ")))


def test_a_migration_that_fails_later_leaves_no_table_of_ours(tmp_path: Path, postgres_database: str) -> None:
    for home in (SQLiteHome(tmp_path / "shop.db"), PostgresHome(postgres_database)):
        project = project_in(tmp_path / home.dialect, home)
        project.write('postroom.upgrade(op, to=1)\n    op.execute("SELECT 1 FROM nowhere")')
        assert "nowhere" in project.alembic("upgrade", "head", code=1)
        assert catalogue(home) == {}


async def test_another_prefix_and_schema_are_written_into_the_migration(tmp_path: Path, postgres_database: str) -> None:
    home = PostgresHome(postgres_database)
    project = project_in(tmp_path / "project", home, ', tables=TableNames(prefix="mail", schema="shop"), lanes=8')
    project.alembic("revision", "--autogenerate", "-m", "first")
    names = "tables=TableNames(prefix='mail', schema='shop')"
    assert f"postroom.upgrade(op, to=1, lanes=8, {names})" in project.migration("first")
    project.alembic("upgrade", "head")
    assert "No new upgrade operations" in project.alembic("check")
    assert home.sql("SELECT count(*) FROM shop.mail_lane") == [(8,)]
