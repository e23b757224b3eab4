"""Our tables in somebody's metadata: true to the database, and made by our own SQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from tests.conformance.handles.held import skip_without_mysqlclient
from tests.unit.integrations.sqla.conftest import NAMES, engine_of
from tests.unit.stores.catalogues import catalogue
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome, SQLiteHome
from tests.unit.stores.test_schema import elsewhere
from tests.unit.stores.two_steps import in_two_steps, two_steps

from postroom import Message, Outbox, TableNames
from postroom.contracts.ops import Query
from postroom.errors import ConfigError, NotInTransaction, SchemaMismatch, StoreError, StoreUnavailable
from postroom.integrations.sqlalchemy import add_tables, dialects, drop, migrate
from postroom.stores import open_store
from postroom.stores.mysql import schema
from postroom.stores.sql import migrations
from postroom.stores.sql.mysql_server import lock_name

POST = TableNames(prefix="post")
AWKWARD = {"ix": "ix_%(column_0_label)s", "uq": "uq_%(table_name)s_%(column_0_name)s", "ck": "ck_%(constraint_name)s"}
"""What many projects name their constraints by."""

UNREAD = ("mysql", "id")
"""SQLAlchemy cannot read a default as long as that of our ids out of MariaDB."""


def described(table: sa.Table, dialect: sa.Dialect) -> dict[str, Any]:
    """What a table says of itself: its columns, keys and indexes."""
    return {
        "columns": {
            column.name: (
                column.type.compile(dialect).split(" COLLATE")[0].removesuffix("(11)").removesuffix("(20)"),
                column.nullable or column.primary_key,
                column.computed is not None,
                column.server_default is not None
                or column.identity is not None
                or (dialect.name, column.name) == UNREAD,
            )
            for column in table.columns
        },
        "primary": [column.name for column in table.primary_key],
        "unique": {(*uniques.columns.keys(),) for uniques in table.constraints if type(uniques) is sa.UniqueConstraint}
        | {(*index.columns.keys(),) for index in table.indexes if index.unique},
        "indexes": {index.name: (*index.columns.keys(),) for index in table.indexes if not index.unique},
        "partial": {
            index.name
            for index in table.indexes
            if dialect.name != "mysql" and index.dialect_options[dialect.name].get("where") is not None
        },
    }


@pytest.mark.parametrize("tables", [TableNames(), POST])
async def test_the_tables_are_what_init_makes(home: Home, engine: sa.Engine, tables: TableNames) -> None:
    async with home.open(tables=tables) as store:
        await store.schema.migrate()
    ours = add_tables(sa.MetaData(naming_convention=AWKWARD), NAMES[home.dialect], tables=tables)
    reflected = sa.MetaData()
    reflected.reflect(engine)
    assert set(ours) == set(reflected.tables)
    for name, table in ours.items():
        said, found = (described(each, engine.dialect) for each in (table, reflected.tables[name]))
        for what in said:
            assert said[what] == found[what], f"{what} of {name}"


@pytest.mark.parametrize("lanes", [None, 8])
async def test_create_all_makes_what_init_makes_and_init_then_finds_nothing_to_do(
    home: Home, engine: sa.Engine, tmp_path: Path, lanes: int | None
) -> None:
    metadata = sa.MetaData(naming_convention=AWKWARD)
    orders = sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    add_tables(metadata, NAMES[home.dialect], lanes=lanes)
    metadata.create_all(engine)
    metadata.create_all(engine)
    with elsewhere(home, tmp_path) as beside:
        async with beside.open(lanes=lanes) as store:
            await store.schema.migrate()
        assert catalogue(home) == catalogue(beside)
        assert len(catalogue(home)) >= 8
        other = engine_of(beside)
        of_versions = [sa.inspect(each).get_columns("outbox_schema") for each in (engine, other)]
        other.dispose()
        assert repr(of_versions[0]) == repr(of_versions[1])
    async with home.open() as store:
        assert list((await store.schema.migrate()).applied) == []
        with Session(engine) as session, session.begin():
            session.execute(sa.insert(orders).values(id=1))
            Outbox().put(session, Message("order.paid", key="order-1", data=1))
        assert [record.message.key for record in await store.ops.find(Query())] == ["order-1"]


async def test_a_table_of_ours_can_be_queried_like_any_other(home: Home, engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    outbox = add_tables(metadata, NAMES[home.dialect])["outbox"]
    metadata.create_all(engine)
    with engine.begin() as connection:
        Outbox().put_many(connection, [Message("order.paid", key=key, data=1) for key in "aab"])
    with engine.connect() as connection:
        many = sa.select(outbox.c.key, sa.func.count()).group_by(outbox.c.key).order_by(outbox.c.key)
        assert [tuple(row) for row in connection.execute(many)] == [("a", 2), ("b", 1)]
        assert connection.scalar(sa.select(sa.func.count()).where(outbox.c.settled_at.is_(None))) == 3


async def test_drop_all_takes_them_away_and_leaves_nothing(home: Home, engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    add_tables(metadata, NAMES[home.dialect])
    metadata.create_all(engine)
    metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == sa.inspect(engine).get_view_names() == []
    metadata.create_all(engine)
    async with home.open() as store:
        await store.schema.check()


async def test_what_is_created_for_others_alone_leaves_ours_out(home: Home, engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    orders = sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    add_tables(metadata, NAMES[home.dialect])
    metadata.create_all(engine, tables=[orders])
    assert sa.inspect(engine).get_table_names() == ["orders"]


# ── on a connection of the user's ──


async def test_a_transaction_that_rolls_back_leaves_no_table(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two_steps(monkeypatch)
    for home in (SQLiteHome(tmp_path / "shop.db"), PostgresHome(postgres_database)):
        engine = engine_of(home)
        with engine.connect() as connection, connection.begin() as transaction:
            assert migrate(connection).applied == ["0001_outbox", "0002_inbox"]
            transaction.rollback()
        assert sa.inspect(engine).get_table_names() == []
        engine.dispose()


@pytest.mark.parametrize(
    "driver",
    [
        "postgresql+psycopg",
        "postgresql+psycopg2",
        "postgresql+asyncpg",
        "sqlite+aiosqlite",
        "mysql+asyncmy",
        "mysql+mysqldb",
        "mariadb+pymysql",
    ],
)
async def test_every_driver_makes_them(driver: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    if driver == "mysql+mysqldb":
        skip_without_mysqlclient()
    home: Home
    match driver.partition("+")[0]:
        case "postgresql":
            home = PostgresHome(request.getfixturevalue("postgres_database"))
        case "sqlite":
            home = SQLiteHome(tmp_path / "shop.db")
        case _:
            home = MariaDBHome(request.getfixturevalue("mariadb_database"))
    if driver.endswith(("asyncpg", "aiosqlite", "asyncmy")):
        engine = create_async_engine(f"{driver}://{home.url.partition('://')[2]}")
        async with engine.begin() as asynchronous:
            await asynchronous.run_sync(migrate)
        await engine.dispose()
    else:
        with (blocking := engine_of(home, driver)).begin() as connection:
            migrate(connection)
        blocking.dispose()
    async with home.open() as store:
        await store.schema.check()
        assert list((await store.schema.migrate()).applied) == []


async def test_init_goes_on_where_a_migration_ended_and_the_other_way_round(
    home: Home, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two_steps(monkeypatch)
    with engine.begin() as connection:
        assert migrate(connection, to=1, lanes=8).applied == ["0001_outbox"]
    async with home.open() as store:
        with pytest.raises(SchemaMismatch, match="at version 1, this Postroom needs 2"):
            await store.schema.check()
        assert list((await store.schema.migrate()).applied) == ["0002_inbox"]
    with engine.begin() as connection:
        done = migrate(connection, to=1)
        assert (done.before, done.after, list(done.applied)) == (2, 2, [])
        with pytest.raises(SchemaMismatch, match="have 8 lanes, not the 64"):
            migrate(connection, lanes=64)


async def test_init_waits_for_a_migration_that_has_not_ended(postgres_database: str) -> None:
    engine = engine_of(home := PostgresHome(postgres_database))
    async with home.open() as store:
        with engine.begin() as connection:
            migrate(connection)
            init = asyncio.create_task(store.schema.migrate())
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while home.sql(waiting) == [(0,)]:
                await asyncio.sleep(0.01)
            assert not init.done()
        assert list((await init).applied) == []
    engine.dispose()


async def test_on_mariadb_whoever_migrates_waits_for_the_same_lock_however_the_url_is_spelt(
    mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = MariaDBHome(mariadb_database)
    monkeypatch.setattr(schema, "WAIT_SECONDS", 1)
    monkeypatch.setattr(dialects, "WAIT_SECONDS", 1)
    engine = engine_of(home)
    lock = lock_name(str(home.sql("SELECT database()")[0][0]), TableNames())
    with engine.connect() as holder:
        assert holder.exec_driver_sql(f"SELECT get_lock('{lock}', 0)").scalar() == 1
        for url in (mariadb_database, mariadb_database.replace("mariadb://", "mysql://")):
            async with open_store(url) as store:
                with pytest.raises(StoreUnavailable, match="does not end"):
                    await store.schema.migrate()
        with pytest.raises(StoreUnavailable, match="does not end"), engine.begin() as connection:
            migrate(connection)
    engine.dispose()
    assert sa.inspect(engine).get_table_names() == []


async def test_tables_from_the_future_and_tables_of_others_are_refused(
    home: Home, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.sql("CREATE TABLE inbox (id integer)")
    with pytest.raises(SchemaMismatch, match=r"inbox.* that Postroom did not make"), engine.begin() as connection:
        migrate(connection)
    home.sql("DROP TABLE inbox")
    in_two_steps(monkeypatch)
    with engine.begin() as connection:
        migrate(connection)
    monkeypatch.setattr(migrations, "steps", lambda package: two_steps(package)[:1])
    with pytest.raises(SchemaMismatch, match="pip install --upgrade"), engine.begin() as connection:
        migrate(connection)


@pytest.mark.parametrize("version", [0, 99])
async def test_a_version_that_is_none_is_refused(
    home: Home, engine: sa.Engine, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two_steps(monkeypatch)
    with pytest.raises(ConfigError, match=f"from version 1 to 2, not {version}"), engine.begin() as connection:
        migrate(connection, to=version)


async def test_a_connection_that_commits_each_statement_is_refused(postgres_database: str) -> None:
    engine = engine_of(PostgresHome(postgres_database)).execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(NotInTransaction, match="by half"), engine.begin() as connection:
        migrate(connection)
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()


async def test_tables_that_hold_what_somebody_needs_are_not_dropped(home: Home, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        migrate(connection)
        Outbox().put(connection, Message("order.paid", key="a", data=1))
    with pytest.raises(StoreError, match="1 messages that were not delivered"), engine.begin() as connection:
        drop(connection)
    home.sql("UPDATE outbox SET settled_at = created_at, outcome = 'dead'")
    with pytest.raises(StoreError, match="1 messages that were not delivered"), engine.begin() as connection:
        drop(connection)
    home.sql("UPDATE outbox SET outcome = 'published'")
    at = "1" if home.dialect == "sqlite" else "'2026-01-01'"
    handled = f"'billing', 'shop', '0190d4e1-0000-7000-8000-000000000000', 'handled', 1, {at}"
    home.sql(f"INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at) VALUES ({handled})")
    with pytest.raises(StoreError, match="1 rows of the inbox"), engine.begin() as connection:
        drop(connection)
    with engine.begin() as connection:
        drop(connection, lose_messages=True)
    assert sa.inspect(engine).get_table_names() == []


def test_a_name_that_is_taken_and_a_dialect_that_is_none_are_refused() -> None:
    metadata = sa.MetaData()
    sa.Table("outbox", metadata, sa.Column("id", sa.Integer, primary_key=True))
    with pytest.raises(ConfigError, match="already has a table outbox"):
        add_tables(metadata, "sqlite")
    assert "post_lane" in add_tables(metadata, "sqlite", tables=POST)
    with pytest.raises(ConfigError, match="no tables for oracle"):
        add_tables(sa.MetaData(), "oracle")
    with pytest.raises(ConfigError, match="SQLite has no schemas"):
        add_tables(sa.MetaData(), "sqlite", tables=TableNames(schema="shop"))


def test_tables_in_another_schema_are_made_there(postgres_database: str) -> None:
    metadata, names = sa.MetaData(), TableNames(prefix="mail", schema="shop")
    ours: Mapping[str, sa.Table] = add_tables(metadata, "postgresql", tables=names)
    engine = engine_of(PostgresHome(postgres_database))
    metadata.create_all(engine)
    assert set(sa.inspect(engine).get_table_names(schema="shop")) == set(ours)
    assert sa.inspect(engine).get_table_names() == []
    metadata.drop_all(engine)
    engine.dispose()


# ── what is not installed ──


def without(missing: Sequence[str], code: str) -> str:
    """What a Python says that has not installed these."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({list(missing)!r}))\n"
    done = subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["sqlalchemy", "alembic"])
def test_what_is_missing_is_named_with_what_to_install(name: str) -> None:
    said = without([name], f"import postroom.integrations.{name}").splitlines()[-1]
    assert "MissingDependency" in said
    assert f"pip install {'-U ' if name == 'alembic' else ''}{name}" in said


def test_our_own_drivers_are_not_needed_to_know_the_tables() -> None:
    code = """
import sqlalchemy as sa
from postroom.integrations.sqlalchemy import add_tables
print(*(len(add_tables(sa.MetaData(), dialect)) for dialect in ("sqlite", "postgresql", "mariadb")))
"""
    assert without(["psycopg", "asyncmy"], code) == "8 8 8\n"
