"""Connections to MariaDB that break, servers that are away or too old, URLs that are none."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pytest
from tests.servers.databases import in_database
from tests.servers.mariadb import connect
from tests.servers.ports import free_port
from tests.unit.stores.homes import MariaDBHome, columns

from postroom.config.values import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Retry
from postroom.errors import ConfigError, MissingDependency, SchemaMismatch, StoreError, StoreUnavailable
from postroom.stores import open_store, open_waker
from postroom.stores.mysql import MySQLStore, connections
from postroom.stores.mysql.connections import AT_ONCE, Connection
from postroom.stores.mysql.url import MySQLUrl
from postroom.stores.sql.mysql_server import NEEDED, version_of
from postroom.testing.contracts._case import SECOND, a_message, a_relay, put


@pytest.fixture
async def store(mariadb_home: MariaDBHome) -> AsyncIterator[MySQLStore]:
    async with MySQLStore(mariadb_home.url) as store:
        await store.schema.migrate()
        yield store


def cut(home: MariaDBHome) -> int:
    """End every other connection to this database; how many there were."""
    name = urlsplit(home.url).path[1:]
    with connect(in_database(home.url, "mysql"), autocommit=True) as admin, admin.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", [name])
        threads = columns(cursor.fetchall())
        for thread in threads:
            cursor.execute(f"KILL {thread}")
    return len(threads)


async def ask(connection: Connection, sql: str) -> Any:
    cursor = connection.cursor()
    await cursor.execute(sql)
    return (await cursor.fetchall())[0]


# ── cut ──


async def test_connections_cut_between_transactions_are_replaced(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    await asyncio.gather(*(put(store, "a") for _ in range(5)))
    assert cut(mariadb_home) >= 2
    assert len(await store.lanes.all()) == 64
    cut(mariadb_home)
    assert len(await store.ops.find(Query())) == 5
    await put(store, "a")
    assert len(await store.ops.find(Query())) == 6


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_connection_cut_in_a_transaction_is_a_transient_error_and_nothing_is_half_done(
    store: MySQLStore, mariadb_home: MariaDBHome, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    (first,) = await put(store, "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    real = type(store._statements).run

    async def cutting(self: Any, connection: Connection, name: str, /, **parameters: object) -> object:
        if name == "retry" and moment == "before":
            cut(mariadb_home)
        done = await real(self, connection, name, **parameters)
        if name == "retry" and moment == "after":
            cut(mariadb_home)
        return done

    with monkeypatch.context() as broken:
        broken.setattr(store.outbox._verdicts, "_run", cutting.__get__(store._statements))
        with pytest.raises(StoreUnavailable) as caught:
            await relay.settle(claims, Retry(SECOND, "TIMEOUT"))
    assert caught.value.transient
    assert "\n" not in str(caught.value)
    (record,) = await store.ops.find(Query())
    assert (record.seq, record.status, record.attempts) == (first, "sending", 0)
    assert await relay.settle(claims) == "settled"


async def test_an_error_of_the_callers_own_passes_through_untouched(store: MySQLStore) -> None:
    async def write() -> None:
        async with store.outbox.transaction() as handle:
            await handle.write([a_message()], TableNames())
            raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        await write()
    assert await store.ops.find(Query()) == []


async def test_a_cancelled_call_leaves_nothing_and_the_store_usable(
    store: MySQLStore, mariadb_home: MariaDBHome
) -> None:
    """More calls than there are connections, each stuck behind a lock, each cancelled."""
    with connect(mariadb_home.url) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES outbox WRITE")
        waiting = [asyncio.create_task(store.outbox.put([a_message()])) for _ in range(AT_ONCE + 3)]
        await asyncio.sleep(0.3)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        cursor.execute("UNLOCK TABLES")
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
    assert await store.ops.find(Query()) == []
    await asyncio.gather(*(put(store, "a") for _ in range(AT_ONCE + 3)))
    assert len(await store.ops.find(Query())) == AT_ONCE + 3


# ── lost to another transaction ──


@pytest.mark.parametrize("code", [1205, 1213, 1020])
async def test_a_transaction_that_lost_is_run_again_as_a_whole(store: MySQLStore, code: int) -> None:
    """1205 rolls back the statement alone: what came before it must not be committed with the second try."""
    tries = 0

    async def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await connection.cursor().execute("INSERT INTO outbox (type) VALUES (%s)", (f"try.{tries}",))
        if tries < 3:
            raise asyncmy.errors.OperationalError(code, "lost to another")

    await store._connections.run(work)
    assert [record.message.type for record in await store.ops.find(Query())] == ["try.3"]


async def test_one_that_loses_each_time_is_given_up_as_transient(
    store: MySQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PAUSE_SECONDS", 0.0)
    tries = 0

    async def work(_: Connection) -> None:
        nonlocal tries
        tries += 1
        raise asyncmy.errors.OperationalError(
            1213, "Deadlock found when trying to get lock; try restarting transaction"
        )

    with pytest.raises(StoreUnavailable, match="Deadlock found"):
        await store._connections.run(work)
    assert tries == connections.TRIES


@pytest.mark.parametrize("code", [1205, 1213, 1020])
async def test_a_method_that_lost_half_way_is_run_again_as_a_whole(
    store: MySQLStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The claim is deleted before the verdict is written: the second try must find it there again."""
    (seq,) = await put(store, "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    verdicts: Any = store.outbox._verdicts
    real, ran = verdicts._run, list[str]()

    async def losing(connection: Connection, name: str, /, **parameters: Any) -> Any:
        ran.append(name)
        if ran == ["retry"]:
            raise asyncmy.errors.OperationalError(code, "lost to another")
        return await real(connection, name, **parameters)

    monkeypatch.setattr(verdicts, "_run", losing)
    assert await relay.settle(claims, Retry(SECOND, "TIMEOUT")) == "settled"
    assert ran.count("retry") == 2
    (record,) = await store.ops.find(Query())
    assert (record.seq, record.status, record.attempts) == (seq, "failed", 1)


class Recorder:
    """In place of the connections: says how a method wants to be carried out, and does nothing."""

    async def run(self, _: object) -> str:
        return "run"

    async def ask(self, _: object) -> str:
        return "ask"


async def test_all_that_writes_is_run_again_when_it_loses_and_one_statement_that_reads_is_asked() -> None:
    async with MySQLStore("mysql://app@db/shop") as store:
        found: dict[str, set[str]] = {"run": set(), "ask": set()}
        parts: list[Any] = [store.schema, store.outbox, store.lanes, store.inbox, store.ops]
        for part in parts:
            part.connections = Recorder()
            for name, method in inspect.getmembers(type(part), inspect.iscoroutinefunction):
                if hasattr(method, "__wrapped__"):
                    found[await getattr(part, name)()].add(f"{type(part).__name__}.{name}")
    assert found["ask"] == {
        "MySQLOutbox.peek",
        "MySQLLanes.all",
        "MySQLLanes.relays",
        "MySQLOps._top",
        "MySQLInbox.counts",
        "MySQLInbox.dead",
        "MySQLInbox.known",
    }
    assert found["run"] == {
        *(f"MySQLSchema.{name}" for name in ("migrate", "check", "drop")),
        *(f"MySQLOutbox.{name}" for name in ("put", "claim", "settle")),
        *(f"MySQLLanes.{name}" for name in ("join", "leave", "take", "renew", "release")),
        *(f"MySQLInbox.{name}" for name in ("failed", "bury", "requeue", "purge")),
        *(f"MySQLOps.{name}" for name in ("counts", "find", "ids_between", "_requeue", "_discard")),
    }


# ── sessions ──


async def test_a_session_of_ours_is_as_we_need_it(store: MySQLStore) -> None:
    asked = "SELECT @@tx_isolation, @@time_zone, @@character_set_client, @@idle_transaction_timeout"
    found = await store._connections.ask(lambda connection: ask(connection, asked))
    assert found == ("READ-COMMITTED", "+00:00", "utf8mb4", 5)


async def test_a_transaction_of_the_callers_own_may_be_idle_for_long(store: MySQLStore) -> None:
    async with store.outbox.transaction() as handle:
        assert isinstance(handle._write, partial)
        (connection,) = handle._write.args
        assert await ask(connection, "SELECT @@idle_transaction_timeout, @@in_transaction") == (0, 1)


# ── away, too old, wrong ──


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: parts._replace(netloc=f"postroom:secret@127.0.0.1:{free_port()}"), "Can't connect"),
        (lambda parts: parts._replace(netloc=f"nobody:secret@127.0.0.1:{parts.port}"), "Access denied"),
        (lambda parts: parts._replace(path="/absent"), "Unknown database"),
    ],
)
async def test_a_server_that_is_away_or_refuses_us_is_one_sentence(
    mariadb_home: MariaDBHome, change: Any, said: str
) -> None:
    async with MySQLStore(change(urlsplit(mariadb_home.url)).geturl()) as store:
        for call in (store.schema.migrate, store.lanes.all, store.schema.check):
            with pytest.raises(StoreUnavailable, match=said) as caught:
                await call()
            assert "\n" not in str(caught.value)
            assert "secret" not in str(caught.value)
            assert str(caught.value).endswith("check that it runs, the address, the user and the password.")


async def test_an_old_server_is_refused(mariadb_home: MariaDBHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "mariadb", (99, 1, 0))
    async with mariadb_home.open() as store:
        with pytest.raises(
            StoreError, match=r"MariaDB at .* is version 1\d\.\d+\.\d+; Postroom needs 99\.1\.0 or later"
        ):
            await store.schema.migrate()


@pytest.mark.parametrize(
    ("said", "family", "is_new_enough"),
    [
        ("5.5.5-10.11.19-MariaDB-0+deb12u1-log", "mariadb", True),
        ("11.8.2-MariaDB", "mariadb", True),
        ("10.5.29-MariaDB", "mariadb", False),
        ("8.0.16", "mysql", False),
        ("8.0.17", "mysql", True),
        ("8.4.7-0ubuntu0", "mysql", True),
        ("9.5.0", "mysql", True),
        ("5.7.44-log", "mysql", False),
        ("who knows", "mysql", False),
    ],
)
def test_versions_are_read_from_the_servers_greeting(said: str, family: str, is_new_enough: bool) -> None:
    if is_new_enough:
        assert version_of(said, "there").family == family
    else:
        with pytest.raises(StoreError, match="there is version"):
            version_of(said, "there")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://app:secret@db:port/shop",
        "mysql://app:secret@db",
        "mysql://app:secret@db/",
        "mysql://app:sec/ret@db/shop",
        "mysql://app:secret@db/shop/more",
        "mysql://app:secret@[db/shop",
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not a MySQL URL: write mysql://user:password@host:3306/database"
    ) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert "ret@" not in str(caught.value)


def test_an_option_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="has the option sslmode, which Postroom does not know; there are ssl"):
        open_store("mysql://app:secret@db/shop?sslmode=require")


def test_a_url_may_ask_for_tls_and_a_socket(tmp_path: Path) -> None:
    assert isinstance(MySQLUrl.of("mysql://app@db/shop?ssl=true").parameters["ssl"], ssl.SSLContext)
    assert (
        MySQLUrl.of("mysql://app@db/shop?unix_socket=/run/mysqld.sock").parameters["unix_socket"] == "/run/mysqld.sock"
    )
    with pytest.raises(ConfigError, match=r"absent\.pem, the ssl_ca in .* cannot be read"):
        MySQLUrl.of(f"mysql://app@db/shop?ssl_ca={tmp_path}/absent.pem")


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("postroom.stores.mysql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncmy", None)
    with pytest.raises(MissingDependency, match=r"pip install 'postroom\[mysql\]'"):
        open_store("mariadb://app@db/shop")


async def test_what_a_user_may_not_do_is_told_with_the_remedy(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    name = urlsplit(mariadb_home.url).path[1:]
    user = f"u{name[-8:]}"
    mariadb_home.sql(f"CREATE USER {user}@'127.0.0.1'")
    try:
        mariadb_home.sql(f"GRANT SELECT ON {name}.* TO {user}@'127.0.0.1'")
        async with MySQLStore(mariadb_home.url.replace("postroom@", f"{user}@")) as reader:
            assert await reader.ops.find(Query()) == []
            with pytest.raises(StoreError, match=r"denied.*; grant this user the rights it lacks") as caught:
                await reader.outbox.put([a_message()])
            assert not isinstance(caught.value, StoreUnavailable | SchemaMismatch)
    finally:
        mariadb_home.sql(f"DROP USER {user}@'127.0.0.1'")


async def test_tables_are_dropped_and_a_waker_is_nobodys(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    await store.schema.drop()
    assert mariadb_home.sql("SHOW TABLES") == []
    await store.schema.drop()
    with open_waker(mariadb_home.url) as waker:
        waker.wake()


async def test_a_file_that_the_caller_misses_is_no_database_that_is_away(store: MySQLStore) -> None:
    """Inside a transaction of the store's own, only what the driver says is about the database."""
    with pytest.raises(FileNotFoundError):
        async with store.outbox.transaction():
            raise FileNotFoundError("absent")
    assert await store.ops.find(Query()) == []
