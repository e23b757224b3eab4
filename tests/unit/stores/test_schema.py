"""The tables: made, made again, made by two at once, refused when they do not fit."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.servers.databases import fresh_mariadb_database, in_database
from tests.unit.stores.catalogues import catalogue, renamed, rewritten, with_prefix
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome, SQLiteHome, columns, drop_tables
from tests.unit.stores.two_steps import in_two_steps, two_steps

from postroom.config.tables import NAME_MAX, TableNames
from postroom.contracts.ops import Query
from postroom.errors import ConfigError, SchemaMismatch, StoreError
from postroom.stores import open_store
from postroom.stores.postgres import PostgresStore, connections
from postroom.stores.sql import migrations
from postroom.stores.sql.files import backquoted, read, rename
from postroom.stores.sql.migrations import Step
from postroom.stores.sqlite import SQLiteStore, doctor
from postroom.stores.sqlite import connections as sqlite_connections
from postroom.testing.contracts._case import a_message, a_relay, put

ROOT = str(Path(__file__).parents[3])
LONG = "a" * (NAME_MAX - 1)
"""One short of the longest prefix."""


def write_schema_sql(home: Home, tables: TableNames, lanes: int = 64) -> None:
    """Make the tables as the file for readers has them."""
    script = rename(read(f"postroom.stores.{home.dialect}", "schema.sql"), tables, lanes)
    script = backquoted(script) if home.dialect == "mysql" else script
    home.script(f'CREATE SCHEMA "{tables.schema}";{script}' if tables.schema else script)


@contextmanager
def elsewhere(home: Home, tmp_path: Path) -> Iterator[Home]:
    """A second database beside this one."""
    if home.dialect == "sqlite":
        yield SQLiteHome(tmp_path / "beside.db")
        return
    if home.dialect == "mysql":
        with fresh_mariadb_database(home.url) as url:
            yield MariaDBHome(url)
        return
    name = home.url.rsplit("/", 1)[1] + "_beside"
    with psycopg.connect(in_database(home.url, "postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'".encode())
        try:
            yield PostgresHome(in_database(home.url, name))
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


# ── the file for readers, and the migrations ──


@pytest.mark.parametrize("prefix", ["outbox", "mail_zone", LONG + "b"])
@pytest.mark.parametrize("lanes", [64, 8])
async def test_the_readers_schema_and_the_migrations_make_the_same_tables(
    home: Home, tmp_path: Path, prefix: str, lanes: int
) -> None:
    tables = TableNames(prefix=prefix)
    async with home.open(tables=tables, lanes=lanes) as store:
        await store.schema.migrate()
    with elsewhere(home, tmp_path) as beside:
        write_schema_sql(beside, tables, lanes)
        migrated, written = catalogue(home, prefix), catalogue(beside, prefix)
    assert len(migrated) >= 6
    assert migrated == written
    count = f'SELECT count(*) FROM "{prefix}_lane"'
    assert home.sql(count) == [(lanes,)]


async def test_the_readers_schema_and_the_migrations_agree_in_another_schema_too(postgres_home: PostgresHome) -> None:
    made, written = TableNames(prefix="mail", schema="made"), TableNames(prefix="mail", schema="written")
    async with postgres_home.open(tables=made) as store:
        await store.schema.migrate()
    write_schema_sql(postgres_home, written)
    one, other = catalogue(postgres_home, "mail", "made"), catalogue(postgres_home, "mail", "written")
    assert len(one) >= 6
    assert renamed(one, "made", "S") == renamed(other, "written", "S")
    assert catalogue(postgres_home, "mail", "public") == {}


async def test_another_prefix_changes_the_names_and_nothing_else(home: Home, tmp_path: Path) -> None:
    async with home.open() as store:
        await store.schema.migrate()
    with elsewhere(home, tmp_path) as beside:
        async with beside.open(tables=TableNames(prefix="zzpost")) as store:
            await store.schema.migrate()
        assert with_prefix(catalogue(home), "zzpost") == rewritten(catalogue(beside, "zzpost"), str)


async def test_two_outboxes_whose_long_prefixes_differ_in_the_last_letter_live_side_by_side(home: Home) -> None:
    kept = [TableNames(prefix=LONG + letter) for letter in "xy"]
    for tables in kept:
        async with home.open(tables=tables) as store:
            await store.schema.migrate()
    one, other = (catalogue(home, tables.prefix) for tables in kept)
    assert len(one) == len(other) >= 6
    for number, tables in enumerate(kept, start=1):
        async with home.open(tables=tables) as store:
            await store.schema.check()
            await put(store, *["a"] * number)
            relay = await a_relay(store)
            assert len(await relay.drain()) == number


async def test_migrating_again_does_nothing(home: Home) -> None:
    async with home.open() as store:
        first = await store.schema.migrate()
        before = catalogue(home)
        second = await store.schema.migrate()
    assert (first.before, first.after, list(first.applied)) == (0, 1, ["0001_postroom"])
    assert (second.before, second.after, list(second.applied)) == (1, 1, [])
    assert catalogue(home) == before
    assert home.sql("SELECT version, name FROM outbox_schema") == [(1, "0001_postroom")]


async def test_migrating_in_two_steps_makes_the_same_tables(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with elsewhere(home, tmp_path) as beside:
        async with beside.open() as store:
            await store.schema.migrate()
        in_one_step = catalogue(beside)
    in_two_steps(monkeypatch)
    async with home.open() as store:
        first = await store.schema.migrate()
        before = catalogue(home)
        second = await store.schema.migrate()
    assert (first.before, first.after, list(first.applied)) == (0, 2, ["0001_outbox", "0002_inbox"])
    assert (second.before, second.after, list(second.applied)) == (2, 2, [])
    assert catalogue(home) == before == in_one_step
    assert home.sql("SELECT version, name FROM outbox_schema") == [(1, "0001_outbox"), (2, "0002_inbox")]


# ── two at once ──

MIGRATOR = """
import asyncio, json, sys, warnings
sys.path.insert(0, sys.argv[1])
import pytest
from tests.unit.stores.two_steps import in_two_steps
from postroom.config.values import TableNames
from postroom.stores import open_store

async def main():
    print("ready", flush=True)
    for line in sys.stdin:
        url, prefix = json.loads(line)
        try:
            async with open_store(url, tables=TableNames(prefix=prefix)) as store:
                done = await store.schema.migrate()
            print(json.dumps(list(done.applied)), flush=True)
        except Exception as exc:
            print(json.dumps(f"{type(exc).__name__}: {exc}"), flush=True)

in_two_steps(pytest.MonkeyPatch())
asyncio.run(main())
"""
"""In two steps: one that comes between them would see it."""


@contextmanager
def migrators(number: int) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """Processes that migrate what they are told to, when they are told to."""
    with ExitStack() as stack:
        processes = []
        for _ in range(number):
            process = subprocess.Popen(
                [sys.executable, "-c", MIGRATOR, ROOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes


def tell(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


async def test_of_processes_that_migrate_at_once_one_does_it(home: Home, tmp_path: Path) -> None:
    with migrators(3) as processes:
        for number in range(20):
            here = SQLiteHome(tmp_path / f"round{number}.db") if home.dialect == "sqlite" else home
            for process in processes:
                tell(process, here.url, f"round{number}")
            answers = [answer(process) for process in processes]
            assert [said for said in answers if isinstance(said, str)] == []
            assert sorted(answers) == [[], [], ["0001_outbox", "0002_inbox"]]
            assert here.sql(f"SELECT version FROM round{number}_schema") == [(1,), (2,)]
            assert here.sql(f"SELECT count(*) FROM round{number}_lane") == [(64,)]


# ── what does not fit ──


async def test_tables_of_a_later_postroom_are_refused_with_the_command_to_type(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        home.sql(
            "INSERT INTO outbox_schema (version, name, applied_at) SELECT 99, 'x', max(applied_at) FROM outbox_schema"
        )
        for refused in (store.schema.check, store.schema.migrate):
            with pytest.raises(SchemaMismatch, match=r"version 99.*`pip install --upgrade postroom`") as caught:
                await refused()
            assert caught.value.facts == {"version": 99, "needed": 1}
    assert columns(home.sql("SELECT version FROM outbox_schema ORDER BY 1")) == [1, 99]


async def test_a_database_without_tables_is_refused_with_the_command_to_type(home: Home) -> None:
    async with home.open() as store:
        with pytest.raises(SchemaMismatch, match=r"are not in .*`postroom init --store .*`"):
            await store.schema.check()
        for ask in (store.lanes.all, store.ops.counts, lambda: store.ops.find(Query())):
            with pytest.raises(SchemaMismatch, match=r"are not in .*`postroom init --store .*`"):
                await ask()
        with pytest.raises(SchemaMismatch, match="postroom init --store"):
            await store.outbox.put([a_message()])
        with pytest.raises(SchemaMismatch, match="postroom init --store"):
            async with store.outbox.transaction() as handle:
                await handle.write([a_message()], TableNames())


async def test_tables_without_a_version_are_refused_and_kept(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        await put(store, "a")
        home.sql("DELETE FROM outbox_schema")
        with pytest.raises(SchemaMismatch, match=r"`postroom init --store .*`"):
            await store.schema.check()
        with pytest.raises(SchemaMismatch, match=r"did not make.*postroom init --store .* --table-prefix postroom"):
            await store.schema.migrate()
        assert len(await store.ops.find(Query())) == 1
    assert home.sql("SELECT version FROM outbox_schema") == []


async def test_a_table_that_went_missing_is_told_with_the_command_to_type(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        home.script("DROP VIEW outbox_messages; DROP TABLE outbox_hold; DROP TABLE outbox")
        with pytest.raises(SchemaMismatch, match="postroom init --store"):
            await store.outbox.put([a_message()])
        with pytest.raises(SchemaMismatch, match=r"`postroom init --store .*`"):
            await store.ops.find(Query())


EXTRA = "CREATE TABLE outbox_extra (seq integer);"
in_one_transaction = pytest.mark.parametrize("home", ["sqlite", "postgres"], indirect=True)
"""MariaDB and MySQL commit after each CREATE: what they do instead is in test_mysql_schema.py."""


def with_one_more_step(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """As if this Postroom had one migration more."""
    real = migrations.steps

    def longer(package: str) -> Sequence[Step]:
        return [*real(package), Step(2, "0002_extra", sql)]

    monkeypatch.setattr(migrations, "steps", longer)


async def test_older_tables_are_refused_until_they_are_migrated(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        await put(store, "a")
        with_one_more_step(monkeypatch, EXTRA)
        with pytest.raises(SchemaMismatch, match=r"at version 1, .* needs 2: run `postroom init --store .*`") as caught:
            await store.schema.check()
        assert caught.value.facts == {"version": 1, "needed": 2}
        migrated = await store.schema.migrate()
        assert (migrated.before, migrated.after, list(migrated.applied)) == (1, 2, ["0002_extra"])
        await store.schema.check()
        assert len(await store.ops.find(Query())) == 1
    assert home.sql("SELECT count(*) FROM outbox_extra") == [(0,)]


@pytest.mark.parametrize("name", ["inbox", "inbox_dead"])
async def test_an_inbox_of_somebody_else_is_refused_and_kept(home: Home, name: str) -> None:
    """Many a service has a table that it calls `inbox`: it must not be taken for ours, nor touched."""
    home.script(f"CREATE TABLE {name} (letter integer); INSERT INTO {name} (letter) VALUES (7);")
    async with home.open() as store:
        for _ in range(2):
            with pytest.raises(SchemaMismatch, match=rf"table .{name}. in .* did not make.* --table-prefix postroom"):
                await store.schema.migrate()
        with pytest.raises(SchemaMismatch):
            await store.schema.check()
    assert home.sql(f"SELECT letter FROM {name}") == [(7,)]
    async with home.open(tables=TableNames(prefix="postroom")) as store:
        await store.schema.migrate()
        await store.schema.check()


@pytest.mark.parametrize("name", ["inbox", "inbox_dead"])
async def test_an_inbox_of_somebody_else_that_a_later_step_meets_is_refused_and_kept(
    home: Home, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two_steps(monkeypatch)
    async with home.open() as store:
        with monkeypatch.context() as older:
            older.setattr(migrations, "steps", lambda package: two_steps(package)[:1])
            await store.schema.migrate()
        home.script(f"CREATE TABLE {name} (letter integer); INSERT INTO {name} (letter) VALUES (7);")
        with pytest.raises(SchemaMismatch, match=rf"table .{name}. in .* did not make"):
            await store.schema.migrate()
    assert home.sql(f"SELECT letter FROM {name}") == [(7,)]
    assert home.sql("SELECT version FROM outbox_schema") == [(1,)]


async def test_what_is_dropped_is_of_this_prefix_alone(home: Home) -> None:
    def everything() -> set[str]:
        return set(catalogue(home, ""))

    made: dict[str, set[str]] = {}
    for prefix in ("outbox", "post", "post_x", "x_outbox"):
        before = everything()
        async with home.open(tables=TableNames(prefix=prefix)) as store:
            await store.schema.migrate()
        made[prefix] = everything() - before
        assert len(made[prefix]) >= 8
    for prefix, its_own in made.items():
        before = everything()
        await drop_tables(home.url, TableNames(prefix=prefix))
        assert before - everything() == its_own
    assert everything() == set()


@in_one_transaction
async def test_a_migration_that_fails_half_way_leaves_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        before = catalogue(home)
        with_one_more_step(monkeypatch, EXTRA + "\nINSERT INTO outbox_lane (lane) VALUES (77);\n" + EXTRA)
        with pytest.raises(StoreError, match="outbox_extra"):
            await store.schema.migrate()
        assert catalogue(home) == before
        assert home.sql("SELECT version FROM outbox_schema ORDER BY 1") == [(1,)]
        assert home.sql("SELECT count(*) FROM outbox_lane") == [(64,)]


@in_one_transaction
async def test_a_first_migration_that_fails_half_way_leaves_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        with_one_more_step(broken, "CREATE TABLE outbox_lane (lane integer);")
        async with home.open() as store:
            with pytest.raises(StoreError, match="outbox_lane"):
                await store.schema.migrate()
            with pytest.raises(SchemaMismatch):
                await store.schema.check()
    assert catalogue(home) == {}
    async with home.open() as store:
        await store.schema.migrate()
        await store.schema.check()


# ── lanes ──


async def test_the_number_of_lanes_is_honoured(home: Home) -> None:
    async with home.open(lanes=8) as store:
        await store.schema.migrate()
        await store.outbox.put([a_message(key=f"k{number}") for number in range(200)])
        assert [lane.lane for lane in await store.lanes.all()] == list(range(8))
        assert {record.lane for record in await store.ops.find(Query())} == set(range(8))
    async with home.open() as later:
        await later.schema.migrate()
        await later.schema.check()
        await put(later, "k1")
        relay = await a_relay(later)
        assert len(await relay.drain()) == 201


async def test_another_number_of_lanes_is_refused(home: Home) -> None:
    async with home.open(lanes=8) as store:
        await store.schema.migrate()
    async with home.open(lanes=16) as other:
        with pytest.raises(SchemaMismatch, match="have 8 lanes, not the 16 asked for") as caught:
            await other.schema.migrate()
        assert caught.value.facts == {"found": 8, "wanted": 16}
    async with home.open(lanes=8) as same:
        await same.schema.migrate()
    assert home.sql("SELECT count(*) FROM outbox_lane") == [(8,)]


# ── servers and files that will not do ──


async def test_an_old_sqlite_is_refused(sqlite_home: SQLiteHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connections, "VERSION_MIN", (99, 1, 0))
    async with sqlite_home.open() as store:
        with pytest.raises(StoreError, match=r"links SQLite 3\..*; Postroom needs 99\.1\.0 or later"):
            await store.schema.migrate()


async def test_an_old_postgresql_is_refused(postgres_home: PostgresHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "VERSION_MIN", 990_000)
    async with postgres_home.open() as store:
        with pytest.raises(StoreError, match=r"is version \d\d; Postroom needs 99 or later"):
            await store.schema.migrate()


async def test_a_database_that_is_not_in_utf8_is_refused_by_migrate(postgres_home: PostgresHome) -> None:
    name = postgres_home.url.rsplit("/", 1)[1] + "_latin"
    with psycopg.connect(postgres_home.url, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
        try:
            async with PostgresStore(in_database(postgres_home.url, name)) as store:
                with pytest.raises(StoreError, match=f"{name} is encoded in LATIN1.*ENCODING 'UTF8'"):
                    await store.schema.migrate()
                with pytest.raises(SchemaMismatch, match="postroom init"):
                    await store.schema.check()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_the_connection_the_sqlite_store_uses_is_durable_and_patient(sqlite_home: SQLiteHome) -> None:
    async with SQLiteStore(sqlite_home.path) as store:
        await store.schema.migrate()
        pragmas = ("journal_mode", "synchronous", "busy_timeout")
        found = [
            await store._writer.run(lambda tx, name=name: tx.execute(f"PRAGMA {name}").fetchone()[0])  # type: ignore[misc]
            for name in pragmas
        ]
    full = 2
    assert found == ["wal", full, timedelta(seconds=10) / timedelta(milliseconds=1)]


@pytest.mark.parametrize("path", [":memory:", ""])
async def test_a_sqlite_that_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="memory://"):
        SQLiteStore(path)
    with pytest.raises(ConfigError, match=r"sqlite:///shop\.db"):
        open_store(f"sqlite:///{path}")


async def test_sqlite_has_no_schemas(sqlite_home: SQLiteHome) -> None:
    with pytest.raises(ConfigError, match="no schemas: leave out the schema name 'shop'"):
        sqlite_home.open(tables=TableNames(schema="shop"))


# ── the WAL-reset defect ──


@pytest.mark.parametrize(
    ("version", "defect"),
    [
        ((3, 37, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_the_wal_reset_defect_is_known_by_its_versions(version: tuple[int, int, int], defect: bool) -> None:
    assert doctor.has_wal_reset_defect(version) is defect


@pytest.mark.parametrize("defect", [True, False])
async def test_the_wal_reset_defect_is_told_once_and_only_where_it_is(
    sqlite_home: SQLiteHome, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, defect: bool
) -> None:
    monkeypatch.setattr(doctor, "has_wal_reset_defect", lambda: defect)
    doctor.warn_of_wal_reset_defect.cache_clear()
    with caplog.at_level(logging.WARNING, logger=doctor.log.name):
        for _ in range(3):
            await sqlite_home.open().close()
    doctor.warn_of_wal_reset_defect.cache_clear()
    told = [record.getMessage() for record in caplog.records if "WAL-reset" in record.getMessage()]
    assert len(told) == (1 if defect else 0)
    assert all("upgrade the system's libsqlite3" in each and "relay inside it" in each for each in told)
