"""What an inbox forgets is found by an index, however much other inboxes remember."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from pymongo import MongoClient
from tests.unit.stores.homes import MariaDBHome

from postroom.config.values import TableNames
from postroom.stores import open_store
from postroom.stores.mysql.parameters import text_of
from postroom.stores.mysql.statements import INBOX_FILES as MYSQL_FILES
from postroom.stores.mysql.statements import Statements as MySQLStatements
from postroom.stores.postgres.statements import INBOX_FILES as POSTGRES_FILES
from postroom.stores.postgres.statements import Statements as PostgresStatements
from postroom.stores.sql.times import microseconds
from postroom.stores.sqlite.statements import INBOX_FILES as SQLITE_FILES
from postroom.stores.sqlite.statements import Statements as SQLiteStatements

NOW = datetime(2026, 11, 18, tzinfo=UTC)
BEFORE = NOW - timedelta(days=1)
OWN, OTHERS, OLD = 1_000, 20_000, 100
"""How many messages this inbox knows, how many another, and how many of its own are to be forgotten."""


def times(number: int) -> list[datetime]:
    """Of these messages: the first were handled two days ago, the others now."""
    return [NOW - timedelta(days=2) if each < OLD else NOW for each in range(number)]


async def test_on_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    async with open_store(f"sqlite:///{file}") as store:
        await store.schema.migrate()
    with closing(sqlite3.connect(file)) as connection:
        text = "EXPLAIN QUERY PLAN " + SQLiteStatements(TableNames(), SQLITE_FILES).texts["forget"]
        facts = {"consumer": "billing", "before": microseconds(BEFORE), "limit": 100}
        plan = [row[3] for row in connection.execute(text, facts)]
    assert any(re.search(r"USING (COVERING )?INDEX inbox_at \(consumer=\? AND at<\?\)", step) for step in plan), plan
    assert not any(step.startswith("SCAN inbox") or "TEMP B-TREE" in step for step in plan), plan


async def test_on_postgres_it_reads_only_the_pages_of_that_time(postgres_database: str) -> None:
    async with open_store(postgres_database) as store:
        await store.schema.migrate()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at)"
            " SELECT 'billing', 'shop', gen_random_uuid(), 'handled', 1, %s::timestamptz + number * interval '1 second'"
            " FROM generate_series(1, 100000) AS number",
            [NOW - timedelta(seconds=1000)],
        )
        connection.execute("VACUUM ANALYZE inbox")  # as autovacuum does: it notes the times of new pages
        text = PostgresStatements(TableNames(), POSTGRES_FILES).texts["forget"]
        facts = {"consumer": "billing", "before": NOW, "limit": 10_000}
        query = "EXPLAIN (ANALYZE, FORMAT JSON) " + text
        ((plan,),) = connection.execute(query.encode(), facts).fetchall()
    nodes = [node for node in every_node(plan[0]["Plan"]) if node.get("Relation Name") == "inbox"]
    assert {node["Node Type"] for node in nodes} <= {"Bitmap Heap Scan", "Tid Scan", "Delete", "ModifyTable"}
    read = [
        node["Actual Rows"] + node.get("Rows Removed by Index Recheck", 0)
        for node in nodes
        if "Heap" in node["Node Type"]
    ]
    assert 1_000 <= max(read) < 30_000, "the index leads to the pages of that time"


def every_node(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [node, *(each for below in node.get("Plans", ()) for each in every_node(below))]


async def test_on_mariadb(mariadb_home: MariaDBHome) -> None:
    async with mariadb_home.open() as store:
        await store.schema.migrate()
    mariadb_home.sql(
        "INSERT INTO inbox (consumer, source, message_id, outcome, attempts, at)"
        " SELECT IF(seq <= 1000, 'billing', 'mailing'), 'shop', uuid(), 'handled', 1,"
        " IF(seq <= 100 OR seq > 1000, '2026-11-16', '2026-11-18') FROM seq_1_to_21000"
    )
    text = MySQLStatements(TableNames(), MYSQL_FILES).texts["forget"]
    facts = {"consumer": "billing", "before": text_of(BEFORE), "limit": 10_000}
    with mariadb_home.connect() as connection, connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + text, facts)
        ((_, _, table, kind, _, index, _, _, rows, *_),) = cursor.fetchall()
    assert (table, kind, index) == ("inbox", "range", "inbox_at")
    assert int(rows) < 2 * OLD


async def test_on_mongodb(mongo_database: str) -> None:
    async with open_store(mongo_database) as store:
        await store.schema.migrate()
    with MongoClient[dict[str, Any]](mongo_database) as client:
        database = client.get_default_database()
        rows = [("billing", number, at) for number, at in enumerate(times(OWN))]
        rows += [("mailing", number, NOW - timedelta(days=2)) for number in range(OTHERS)]
        database["inbox"].insert_many(
            {"_id": {"consumer": name, "message_id": str(number), "source": "shop"}, "outcome": "handled", "at": at}
            for name, number, at in rows
        )
        database.command({"profile": 2})
        async with open_store(mongo_database) as opened:
            inbox = opened.inbox
            assert await inbox.purge("billing", BEFORE) == OLD
        database.command({"profile": 0})
        looked = list(database["system.profile"].find({"ns": f"{database.name}.inbox"}))
    assert {each["op"] for each in looked} == {"query", "remove"}
    for each in looked:
        assert each["docsExamined"] <= 2 * OLD, each["planSummary"]
        assert each["keysExamined"] <= 3 * OLD, each["planSummary"]
