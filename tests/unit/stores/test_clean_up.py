"""The statements of the page on cleaning up: old published rows go, in batches, and nothing else does."""

from __future__ import annotations

import os
import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from tests.docs.blocks import all_of
from tests.unit.stores.homes import Home

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Expired, Retry, Verdict
from postroom.contracts.store import Store
from postroom.stores import open_store
from postroom.stores.sql.times import microseconds
from postroom.testing.contracts._case import Relay, a_message

PAGE = Path(__file__).parents[3] / "docs/how-to/clean-up.md"
BATCH, MANY = 1_000, 2_300
MANY_YOUNG = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT 'young', i FROM n",
    "postgres": "SELECT 'young', i FROM generate_series(1, 20000) i",
    "mysql": "SELECT 'young', seq FROM seq_1_to_20000",
}
LONG_AGO, LATELY = timedelta(days=10), timedelta(days=1)


def block(language: str) -> str:
    """The only block of the page with this behind its fence."""
    (found,) = re.findall(rf"```{language}\n(.+?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def statements(dialect: str) -> list[str]:
    """What the page says for a database, one by one; the last deletes."""
    if dialect == "mysql":
        (job,) = all_of("commands at mysql")
        *_, code = shlex.split(job.code.replace("\\\n", "\n"))
    else:
        code = block(f"sql store={dialect}")
    return [each.strip() for each in code.split(";") if each.strip()]


async def fill(store: Store, number: int) -> dict[str, str]:
    """Messages of every kind, by key; told which status each has."""
    now = utcnow()
    relay = Relay(store, "relay")
    await relay.take(now=now)
    await store.outbox.put([a_message(key=f"old-{at % 7}", data=at) for at in range(number)])
    await relay.drain(limit=500, now=now)
    verdicts: dict[str, Verdict] = {
        "dead": Buried("REFUSED", "no", park=True),
        "expired": Expired(),
        "failed": Retry(timedelta(minutes=1), "LATER", "no"),
    }
    for key, verdict in verdicts.items():
        await store.outbox.put([a_message(key=key)])
        await relay.settle(await relay.claim(now=now), verdict, now=now)
    await store.outbox.put([a_message(key="dead", data="behind the dead one")])
    await store.outbox.put([a_message(key="pending")])
    return {"dead": "dead pending", "expired": "expired", "failed": "failed", "pending": "pending"}


async def found(store: Store) -> dict[str, str]:
    """The statuses of each key's messages, of the keys whose messages are not just published."""
    kept: dict[str, list[str]] = {}
    for record in await store.ops.find(Query(limit=10_000)):
        kept.setdefault(str(record.message.key), []).append(record.status)
    return {key: " ".join(statuses) for key, statuses in kept.items()}


def ago(home: Home, by: timedelta) -> Any:
    """That moment, as the database keeps it."""
    moment = utcnow() - by
    match home.dialect:
        case "sqlite":
            return microseconds(moment)
        case "mysql":
            return moment.replace(tzinfo=None)
    return moment


def age(home: Home, by: timedelta) -> None:
    """Make all that is there older."""
    home.sql("UPDATE outbox SET created_at = ?", ago(home, by))
    home.sql("UPDATE outbox SET settled_at = ? WHERE settled_at IS NOT NULL", ago(home, by))


def clean(home: Home) -> list[int]:
    """Run what the page says until it deletes none; how many went each time."""
    gone: list[int] = []
    while not gone or gone[-1]:
        before = home.sql("SELECT count(*) FROM outbox")[0][0]
        for statement in statements(home.dialect):
            home.sql(statement)
        gone.append(before - home.sql("SELECT count(*) FROM outbox")[0][0])
    return gone


@pytest.mark.requirement("C6")
async def test_old_published_rows_go_in_batches_and_all_others_stay(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        kept = await fill(store, MANY)
        age(home, LONG_AGO)
        await store.outbox.put([a_message(key="young")])
        assert clean(home) == [BATCH, BATCH, MANY - 2 * BATCH, 0]
        assert await found(store) == {**kept, "young": "pending"}


@pytest.mark.requirement("C6")
async def test_rows_that_were_published_lately_stay(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        await fill(store, 20)
        age(home, LATELY)
        assert clean(home) == [0]


async def test_an_old_row_that_was_published_lately_stays(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        await fill(store, 20)
        age(home, LONG_AGO)
        home.sql("UPDATE outbox SET settled_at = ? WHERE seq <= 5", ago(home, LATELY))
        assert clean(home) == [15, 0]


async def test_the_key_of_a_dead_message_is_still_parked_and_moves_when_it_is_requeued(home: Home) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        await fill(store, 20)
        age(home, LONG_AGO)
        clean(home)
        now = utcnow() + timedelta(hours=1)
        relay = Relay(store, "later")
        await relay.take(now=now)
        await relay.drain(now=now)
        assert (await found(store))["dead"] == "dead pending"
        await store.ops.requeue(Query(status="dead"))
        await relay.drain(now=now)
        assert (await found(store))["dead"] == "published published"


# ── what they read ──


async def test_the_statement_walks_the_primary_key_and_reads_what_is_old(home: Home) -> None:
    """Twenty thousand young rows behind a hundred old ones."""
    async with home.open() as store:
        await store.schema.migrate()
        await fill(store, 100)
        age(home, LONG_AGO)
        home.sql(f"INSERT INTO outbox (type, payload) {MANY_YOUNG[home.dialect]}")
        home.sql("UPDATE outbox SET outcome = 'published', settled_at = created_at WHERE type = 'young'")
        home.sql({"mysql": "ANALYZE TABLE outbox"}.get(home.dialect, "ANALYZE"))
        delete = statements(home.dialect)[-1]
        match home.dialect:
            case "postgres":
                with psycopg.connect(home.url) as connection:
                    rows = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {delete}".encode()).fetchall()
                plan = str(rows)
                assert "outbox_pkey" in plan
                assert "'Seq Scan'" not in plan
                removed = sum(int(number) for number in re.findall(r"'Rows Removed by Filter': (\d+)", plan))
                assert removed < 300, "it read young rows"
            case "mysql":
                for row in home.sql(f"EXPLAIN {delete}"):
                    _, _, table, kind, _, key, *_ = row
                    assert table != "outbox" or (key == "PRIMARY" and kind != "ALL"), row
            case _:
                plan = str(home.sql(f"EXPLAIN QUERY PLAN {delete}"))
                assert "SEARCH outbox USING INTEGER PRIMARY KEY (rowid<?)" in plan


# ── MongoDB ──


async def test_old_published_documents_go_and_all_others_stay(
    mongo_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "POSTROOM_STORE", mongo_database)
    (job,) = all_of("job at mongo")
    code = compile(job.code, str(job), "exec")
    async with open_store(mongo_database) as store:
        await store.schema.migrate()
        kept = await fill(store, 1_200)
        moment: datetime = utcnow() - LONG_AGO
        with MongoClient[dict[str, Any]](mongo_database) as client:
            outbox = client.get_default_database()["outbox"]
            outbox.update_many({}, {"$set": {"created_at": moment}})
            outbox.update_many({"settled_at": {"$exists": True}}, {"$set": {"settled_at": moment}})
            lately = outbox.find_one_and_update(
                {"outcome": "published"}, {"$set": {"settled_at": utcnow() - LATELY}}, sort=[("seq", 1)]
            )
            await store.outbox.put([a_message(key="young")])
            exec(code, {})
            left = outbox.find_one({"outcome": "published"})
            assert left is not None
            assert lately is not None
            assert left["_id"] == lately["_id"]
            outbox.delete_one({"_id": left["_id"]})
        assert await found(store) == {**kept, "young": "pending"}
