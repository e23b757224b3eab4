"""What is special about the tables on MariaDB and MySQL, which commit after every CREATE."""

from __future__ import annotations

import pytest
from tests.unit.stores.catalogues import catalogue
from tests.unit.stores.homes import MariaDBHome, columns
from tests.unit.stores.two_steps import NAMES as TWO
from tests.unit.stores.two_steps import in_two_steps, two_steps

from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Retry
from postroom.errors import SchemaMismatch, StoreError
from postroom.stores.mysql import schema
from postroom.stores.mysql.schema import split
from postroom.stores.sql import mysql_server
from postroom.stores.sql.files import backquoted, rename
from postroom.stores.sql.migrations import steps
from postroom.testing.contracts._case import SECOND, a_message, a_relay, put

DEATHS = [
    pytest.param(names, step.number, done, id=f"{step.name}-{done}")
    for names, script in ((["0001_postroom"], steps(schema.PACKAGE)), (TWO, two_steps(schema.PACKAGE)))
    for step in script
    for done in range(len(split(backquoted(rename(step.sql, TableNames())))) + 1)
]
"""After each statement of each step, in our own migrations, and as if there had been two."""


@pytest.mark.parametrize(("names", "step", "done"), DEATHS)
async def test_an_init_that_died_half_way_is_finished_by_the_next(
    mariadb_home: MariaDBHome, monkeypatch: pytest.MonkeyPatch, names: list[str], step: int, done: int
) -> None:
    """After each statement; of what somebody put in between, nothing is lost."""
    if names == TWO:
        in_two_steps(monkeypatch)
    real, begun = schema.split, list[str]()

    def dying(script: str) -> list[str]:
        begun.append(script)
        return [*real(script)[:done], "SELECT died"] if len(begun) == step else real(script)

    async with mariadb_home.open(lanes=8) as store:
        with monkeypatch.context() as broken:
            broken.setattr(schema, "split", dying)
            with pytest.raises(StoreError):
                await store.schema.migrate()
        with pytest.raises(SchemaMismatch, match="postroom init --store"):
            await store.schema.check()
        if step > 1 or done:
            await store.outbox.put([a_message(key="a")])
    async with mariadb_home.open() as later:
        migrated = await later.schema.migrate()
        assert (migrated.before, migrated.after, list(migrated.applied)) == (
            step - 1,
            len(names),
            names[step - 1 :],
        )
        await later.schema.check()
        assert len(await later.lanes.all()) == 8, "as many as were begun"
        await put(later, "b")
        relay = await a_relay(later)
        assert len(await relay.drain()) == (2 if step > 1 or done else 1)
    assert len(catalogue(mariadb_home)) == 8


async def test_another_number_of_lanes_does_not_finish_what_was_begun(
    mariadb_home: MariaDBHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mariadb_home.open(lanes=8) as store:
        with monkeypatch.context() as broken:
            broken.setattr(schema, "split", lambda script: [*split(script)[:1], "SELECT died"])
            with pytest.raises(StoreError):
                await store.schema.migrate()
    async with mariadb_home.open(lanes=16) as other:
        with pytest.raises(SchemaMismatch, match="have 8 lanes, not the 16 asked for"):
            await other.schema.migrate()


async def test_a_log_of_statements_is_refused(mariadb_home: MariaDBHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_server, "SAFE_LOGS", ("ROW",))  # the test server logs MIXED
    async with mariadb_home.open() as store:
        with pytest.raises(StoreError, match=r"logs statements for its replicas.*set binlog_format = ROW"):
            await store.schema.migrate()
    assert mariadb_home.sql("SHOW TABLES") == []


async def test_every_table_is_of_innodb_and_compares_byte_for_byte(mariadb_home: MariaDBHome) -> None:
    async with mariadb_home.open() as store:
        await store.schema.migrate()
    asked = "SELECT DISTINCT {} FROM information_schema.tables WHERE table_schema = database() AND engine IS NOT NULL"
    assert columns(mariadb_home.sql(asked.format("engine"))) == ["InnoDB"]
    assert columns(mariadb_home.sql(asked.format("table_collation"))) == ["utf8mb4_nopad_bin"]


@pytest.mark.parametrize("lanes", [1, 31, 32, 33, 1024])
async def test_there_are_as_many_lanes_as_were_asked_for(mariadb_home: MariaDBHome, lanes: int) -> None:
    async with mariadb_home.open(lanes=lanes) as store:
        await store.schema.migrate()
        assert [lane.lane for lane in await store.lanes.all()] == list(range(lanes))


async def test_the_tables_may_be_in_another_database(mariadb_home: MariaDBHome) -> None:
    """What others call a schema is a database here."""
    name = mariadb_home.url.rsplit("/", 1)[1] + "_x"
    tables = TableNames(prefix="post", schema=name)
    try:
        async with mariadb_home.open(tables=tables) as store:
            await store.schema.migrate()
            await store.schema.check()
            await put(store, "a", "b")
            relay = await a_relay(store)
            assert len(await relay.drain()) == 2
            assert len(await store.ops.find(Query(status="published"))) == 2
        assert mariadb_home.sql("SHOW TABLES") == []
    finally:
        mariadb_home.sql(f"DROP DATABASE IF EXISTS {name}")


async def test_what_a_broker_said_is_kept_in_any_alphabet(mariadb_home: MariaDBHome) -> None:
    """The database's own character set is latin1 here."""
    async with mariadb_home.open() as store:
        await store.schema.migrate()
        await put(store, "ключ", "注文")
        relay = await a_relay(store)
        first, second = await relay.claim()
        await relay.settle([first], Buried("КОД", "отказано ☃ 𝄞"))
        await relay.settle([second], Retry(SECOND, "КОД", "отказано ☃ 𝄞"))
        for record in await store.ops.find(Query()):
            assert (record.last_error_code, record.last_error) == ("КОД", "отказано ☃ 𝄞")
        assert await store.ops.requeue(Query()) == 2
        assert len(await relay.drain()) == 2
    assert mariadb_home.sql("SELECT key FROM outbox_hold") == []


async def test_the_longest_keys_and_names_fit(mariadb_home: MariaDBHome) -> None:
    """As long as the limits allow, in four bytes a letter where those count letters."""
    whole = a_message(
        key="k" * 200,
        type="𝄞" * 200,
        topic="𝄞" * 255,
        aggregate="𝄞" * 255,
        correlation_id="𝄞" * 255,
        causation_id="𝄞" * 255,
        idempotency_key="𝄞" * 255,
    )
    async with mariadb_home.open() as store:
        await store.schema.migrate()
        await store.outbox.put([whole])
        relay = await a_relay(store)
        ((one,),) = (claim.messages for claim in await relay.claim())
    assert one.message == whole
