"""A million published rows behind, and no statement of the hot path reads them, whatever the planner believes.

Each statement is explained as the store itself runs it, with its own parameters, in three states of the statistics and
with plans made for these parameters (custom) as with plans kept for any (generic).
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg import AsyncCursor, sql
from tests.servers.databases import fresh_database
from tests.servers.run import current

from postroom.config.values import TableNames
from postroom.contracts.outbox import Buried, Expired, Published, Retry, Settlement, Verdict
from postroom.contracts.store import Store
from postroom.stores.postgres import PostgresStore
from postroom.stores.postgres.connections import Connection
from postroom.stores.postgres.lanes import PostgresLanes
from postroom.stores.postgres.outbox import PostgresOutbox
from postroom.stores.postgres.statements import Statements
from postroom.stores.sql.insert import put_statement
from postroom.stores.sqlite import SQLiteStore
from postroom.stores.sqlite import statements as sqlite_statements
from postroom.testing.contracts._case import NOON, a_message, lost

PUBLISHED = 1_000_000
OPEN = 5_000
LIMIT = 100
STATES = ("never analysed", "analysed while empty", "analysed")
MODES = ("force_custom_plan", "force_generic_plan")
TABLES = ("outbox", "outbox_lane", "outbox_claim", "outbox_hold", "outbox_relay")

Node: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What PostgreSQL did, as it tells it."""

    top: Node

    def nodes(self) -> Iterator[Node]:
        """Every step, with the relation filled in where only its parent names it."""
        todo = [self.top]
        while todo:
            node = todo.pop()
            todo += [{"Relation Name": node.get("Relation Name"), **below} for below in node.get("Plans", ())]
            yield node

    def reads(self, relation: str) -> list[Node]:
        """The steps that read this table: not the one that writes it, nor a heap scan that a bitmap leads."""
        return [
            node
            for node in self.nodes()
            if node.get("Relation Name") == relation
            and "Scan" in node["Node Type"]
            and node["Node Type"] not in ("Bitmap Heap Scan", "CTE Scan", "Function Scan", "Subquery Scan")
        ]

    def indexes(self, relation: str) -> set[str]:
        return {str(node.get("Index Name", node["Node Type"])) for node in self.reads(relation)}


def rows_read(node: Node) -> int:
    """How many rows a step looked at, all its rounds together."""
    per_round = sum(
        node.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    )
    return int(per_round * node["Actual Loops"])


class Spy(Statements):
    """Explains each statement, and undoes that, before it runs it."""

    def __init__(self, mode: str) -> None:
        super().__init__(TableNames())
        self.mode = mode
        self.plans: dict[str, list[Plan]] = {}

    async def run(self, connection: Connection, name: str, /, **parameters: Any) -> AsyncCursor[tuple[Any, ...]]:
        types = await self._types(connection, name, parameters)
        async with connection.transaction(force_rollback=True):
            self.plans.setdefault(name, []).append(await self._explain(connection, name, parameters, types))
        return await super().run(connection, name, **parameters)

    async def _types(self, connection: Connection, name: str, parameters: dict[str, Any]) -> list[str]:
        """The types that the driver really sends: they decide which operators, and so which indexes, there are."""
        await connection.execute("DEALLOCATE ALL", prepare=False)
        async with connection.transaction(force_rollback=True):
            await connection.cursor(binary=True).execute(self.texts[name], parameters, prepare=True)
            asked = "SELECT parameter_types::text[] FROM pg_prepared_statements"
            row = await (await connection.execute(asked, prepare=False)).fetchone()
        assert row is not None
        found: list[str] = row[0]
        return found

    async def _explain(self, connection: Connection, name: str, parameters: dict[str, Any], types: list[str]) -> Plan:
        order = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", self.texts[name])))
        text = re.sub(r"%\((\w+)\)s", lambda found: f"${order.index(found[1]) + 1}", self.texts[name])
        head = f"PREPARE spied ({', '.join(types)}) AS " if types else "PREPARE spied AS "
        given = ", ".join(sql.Literal(parameters[each]).as_string(connection) for each in order)
        execute = f"EXECUTE spied ({given})" if given else "EXECUTE spied"
        await connection.execute(f"SET LOCAL plan_cache_mode = {self.mode}".encode(), prepare=False)
        await connection.execute((head + text.replace("%%", "%")).encode(), prepare=False)
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}".encode()
        row = await (await connection.execute(explain, prepare=False)).fetchone()
        await connection.execute("DEALLOCATE spied", prepare=False)
        assert row is not None
        return Plan(row[0][0]["Plan"])


async def a_day_of_a_relay(url: str, mode: str) -> dict[str, list[Plan]]:
    """Take, claim, settle in every way, claim again what waited, release; every statement's plans. Undone by nobody."""
    spy = Spy(mode)
    async with PostgresStore(url) as store:
        store.outbox, store.lanes = PostgresOutbox(store._connections, spy), PostgresLanes(store._connections, spy)
        owner = f"relay-{mode}"
        taken = await store.lanes.take(owner, limit=64, lease=timedelta(hours=1), lost=lost)
        lanes = {lane.lane: lane.epoch for lane in taken}
        assert len(lanes) == 64
        claims = await store.outbox.claim(owner, lanes, limit=LIMIT)
        assert sum(len(claim.messages) for claim in claims) == LIMIT
        ways: list[Verdict] = [Published(), Retry(timedelta(0), "X"), Buried("Y"), Expired()]
        verdicts = {
            one.seq: ways[(number + place) % 4] if number < 24 else Published()
            for number, claim in enumerate(claims)
            for place, one in enumerate(claim.messages)
        }
        await store.outbox.settle(
            [Settlement(claim, verdicts, is_published=number >= 24) for number, claim in enumerate(claims)]
        )
        claims = await store.outbox.claim(owner, lanes, limit=LIMIT)
        await store.outbox.settle([Settlement(claim, {}) for claim in claims])
        await _beside_a_waiting_key(store, owner, {claims[-1].lane: claims[-1].epoch})
        assert await store.lanes.release(owner, lanes) == set(lanes)
    return spy.plans


async def _beside_a_waiting_key(store: PostgresStore, owner: str, lane: dict[int, int]) -> None:
    """In this lane a key waits for an hour; the others of it go on, until nothing is left to walk to."""
    (claim,) = await store.outbox.claim(owner, lane, limit=LIMIT)
    await store.outbox.settle([Settlement(claim, {claim.messages[0].seq: Retry(timedelta(hours=1), "X")})])
    while claims := await store.outbox.claim(owner, lane, limit=LIMIT):
        await store.outbox.settle([Settlement(claim, {}, is_published=True) for claim in claims])


FILL = f"""
INSERT INTO outbox (id, type, key, payload, time, created_at, settled_at, outcome, attempts)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'order.paid', 'k' || n % 10000, '{{}}',
    now(), now(), now(), 'published', 1
FROM generate_series(1, {PUBLISHED}) n"""
WAITING = f"""
INSERT INTO outbox (type, key, payload, due_at, shelf)
SELECT 'order.paid', 'k' || n % 2000, '{{}}', CASE WHEN n % 50 = 0 THEN now() END, CASE WHEN n % 50 = 0 THEN 'time' END
FROM generate_series(1, {OPEN}) n"""


@dataclass(frozen=True)
class Explained:
    """The plans of every statement, by state and mode."""

    tops: dict[str, dict[str, list[Node]]]

    def of(self, state: str, mode: str, name: str) -> list[Plan]:
        found = self.tops[f"{state}, {mode}"]
        assert name in found, f"{name} did not run; these did: {sorted(found)}"
        return [Plan(top) for top in found[name]]


@pytest.fixture(scope="module")
def explained(postgres_url: str) -> Explained:
    """Made by the first process of the run that asks; the others read what it wrote down."""
    run = current()
    file = run.directory / "plans.explained"
    with run.locked("plans"):
        if not file.exists():
            with fresh_database(postgres_url) as url:
                file.write_text(json.dumps(explain_everything(url)))
    return Explained(json.loads(file.read_text()))


def explain_everything(url: str) -> dict[str, dict[str, list[Node]]]:
    """A million published rows and a few open ones, through all the states of the statistics, one after the other."""
    found: dict[str, dict[str, list[Node]]] = {}
    asyncio.run(migrate(PostgresStore(url)))
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
        connection.execute(FILL.encode())
        connection.execute(WAITING.encode())
        for state in STATES:
            if state == "analysed while empty":
                forget_the_sizes(connection)
            if state == "analysed":
                connection.execute(f"ANALYZE {', '.join(TABLES)}".encode())
            for mode in MODES:
                plans = asyncio.run(a_day_of_a_relay(url, mode))
                found[f"{state}, {mode}"] = {name: [plan.top for plan in each] for name, each in plans.items()}
                found[f"{state}, {mode}"]["put"] = [explain_put(connection, mode)]
    return found


async def migrate(store: Store) -> None:
    async with store:
        await store.schema.migrate()


def explain_put(connection: psycopg.Connection[Any], mode: str) -> Node:
    statement = put_statement("postgres", "numeric_dollar", TableNames(), [a_message(key="a") for _ in range(50)])
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE spied (text) AS {statement.sql}".encode(), prepare=False)
        literal = sql.Literal(statement.rows[0][0]).as_string(connection)
        row = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE spied ({literal})".encode(), prepare=False).fetchone()
        connection.execute("DEALLOCATE spied", prepare=False)
    assert row is not None
    top: Node = row[0][0]["Plan"]
    return top


def forget_the_sizes(connection: psycopg.Connection[Any]) -> None:
    """Leave in the catalogue what ANALYZE leaves there for an empty table."""
    connection.execute("CREATE TABLE nothing (a int)")
    connection.execute("ANALYZE nothing")
    left = connection.execute("SELECT reltuples, relpages FROM pg_class WHERE relname = 'nothing'").fetchone()
    assert left == (0, 0)
    connection.execute(
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE oid = ANY (%s::regclass[])", [list(TABLES)]
    )


in_every_state = pytest.mark.parametrize("state", STATES)
in_both_modes = pytest.mark.parametrize("mode", MODES)
HOT = (
    "line",
    "walk_past",
    "claimed",
    "shelve_held",
    "claim",
    "lift_due",
    "fence",
    "publish",
    "expire",
    "bury",
    "retry",
    "free_keys",
    "hold_keys",
)


@in_every_state
@in_both_modes
@pytest.mark.parametrize("name", HOT)
@pytest.mark.requirement("C5")
def test_no_statement_of_the_hot_path_walks_over_the_outbox(
    explained: Explained, state: str, mode: str, name: str
) -> None:
    """Every look at it is by an index, with a condition on that index: neither all rows nor all of an index."""
    for plan in explained.of(state, mode, name):
        assert plan.reads("outbox")
        for node in plan.reads("outbox"):
            assert "Index Cond" in node or "TID Cond" in node, json.dumps(node, indent=1)


@in_every_state
@in_both_modes
@pytest.mark.requirement("C5")
def test_a_claim_reads_few_times_its_limit(explained: Explained, state: str, mode: str) -> None:
    for plan in explained.of(state, mode, "claim"):
        assert plan.indexes("outbox") == {"outbox_line", "outbox_aside", "outbox_pkey", "Tid Scan"}
        for node in plan.reads("outbox"):
            assert rows_read(node) <= 3 * LIMIT, json.dumps(node, indent=1)
        assert plan.top["Shared Hit Blocks"] + plan.top["Shared Read Blocks"] < 50 * LIMIT


@in_every_state
@in_both_modes
def test_a_claim_looks_held_keys_up_one_by_one(explained: Explained, state: str, mode: str) -> None:
    """A plan is kept, and keys are held later: one that reads all that is on hold would be slow then."""
    for plan in explained.of(state, mode, "claim"):
        assert plan.indexes("outbox_hold") == {"outbox_hold_pkey", "outbox_hold_due"}
        assert all("Index Cond" in node for node in plan.reads("outbox_hold"))


@in_every_state
@in_both_modes
@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("lift_due", {"outbox_later", "outbox_pkey"}),
        ("fence", {"outbox_pkey"}),
        ("publish", {"outbox_pkey"}),
        ("expire", {"outbox_pkey"}),
        ("bury", {"outbox_pkey"}),
        ("retry", {"outbox_pkey"}),
        ("free_keys", {"outbox_aside"}),
        ("hold_keys", {"outbox_aside"}),
    ],
)
def test_each_statement_uses_the_index_made_for_it(
    explained: Explained, state: str, mode: str, name: str, indexes: set[str]
) -> None:
    for plan in explained.of(state, mode, name):
        assert plan.indexes("outbox") == indexes
        for node in plan.reads("outbox"):
            assert rows_read(node) <= 3 * LIMIT, json.dumps(node, indent=1)


@in_every_state
@pytest.mark.parametrize("name", HOT)
def test_a_plan_kept_for_any_parameters_goes_the_same_ways(explained: Explained, state: str, name: str) -> None:
    custom, generic = (explained.of(state, mode, name) for mode in MODES)
    ways = [{relation: plan.indexes(relation) for relation in ("outbox",)} for plan in (*custom, *generic)]
    assert all(way == ways[0] for way in ways)


@in_every_state
@in_both_modes
def test_put_is_an_insert_from_a_function_scan_with_nothing_between(
    explained: Explained, state: str, mode: str
) -> None:
    """Nothing that could change the order of the rows."""
    (plan,) = explained.of(state, mode, "put")
    nodes = [(node["Node Type"], node.get("Operation")) for node in plan.nodes()]
    assert nodes == [("ModifyTable", "Insert"), ("Function Scan", None)]


# ── SQLite ──

SQLITE_FILL = f"""
INSERT INTO outbox (id, hash, type, key, payload, time, created_at, settled_at, outcome, attempts)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {PUBLISHED})
SELECT printf('%08d-0000-7000-8000-000000000000', n), n, 'order.paid', 'k' || n % 10000, '{{}}', 1, 1, 2, 'published', 1
FROM number"""
SQLITE_WAITING = f"""
INSERT INTO outbox (hash, type, key, payload)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {OPEN})
SELECT n % 2000, 'order.paid', 'k' || n % 2000, '{{}}' FROM number"""
PARAMETERS: dict[str, Any] = {
    "lane": 3,
    "now": 1,
    "due_at": 1,
    "limit": LIMIT,
    "key": "k1",
    "keys": '["k1"]',
    "seq": 1,
    "seqs": f"[{PUBLISHED + 1}]",
    "shelf": "key",
    "spent": 1,
    "lost": 0,
    "alone": 0,
    "park": 1,
    "code": "X",
    "error": "",
}
SQLITE_WAYS = {
    "give_hash": ["SCAN outbox USING INDEX outbox_unhashed"],
    "lift_due": [
        "SEARCH outbox USING INDEX outbox_later (lane=? AND due_at<?)",
        "SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)",
    ],
    "walk": [
        "SEARCH h USING COVERING INDEX sqlite_autoindex_outbox_hold_1 (key=?) LEFT-JOIN",
        "SEARCH o USING INDEX outbox_line (lane=?)",
    ],
    "due_holds": ["SEARCH outbox_hold USING INDEX outbox_hold_due (lane=? AND until<?)"],
    "behind": ["SEARCH outbox USING INDEX outbox_aside (key=?)"],
    "shelve": ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "claimed": ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "publish": ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "expire": ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "bury": ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "retry": ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"],
    "free_keys": [
        "SEARCH o USING INDEX outbox_aside (key=?)",
        "SEARCH o USING INDEX outbox_aside (key=?)",
        "SEARCH outbox_hold USING COVERING INDEX sqlite_autoindex_outbox_hold_1 (key=?)",
    ],
    "hold_keys": [
        "SEARCH outbox USING INDEX outbox_aside (key=?)",
        "SEARCH outbox USING INDEX outbox_aside (key=?)",
    ],
}


@pytest.fixture(scope="module")
def big_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same in a file."""
    path = tmp_path_factory.mktemp("big") / "post.db"

    asyncio.run(migrate(SQLiteStore(path)))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in ("synchronous = OFF", "journal_mode = OFF", "cache_size = -400000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.execute(SQLITE_FILL)
        connection.execute(SQLITE_WAITING)
        connection.execute("COMMIT")
    yield path
    path.unlink()


@in_every_state
def test_no_statement_of_sqlites_hot_path_walks_over_the_outbox(big_file: Path, state: str) -> None:
    texts = sqlite_statements.Statements(TableNames()).texts
    with closing(sqlite3.connect(big_file, isolation_level=None)) as connection:
        connection.create_function("postroom_hash", 1, lambda line: 1, deterministic=True)
        connection.execute("BEGIN")
        if state != "never analysed":
            connection.execute("ANALYZE")
        if state == "analysed while empty":
            connection.execute("DELETE FROM sqlite_stat1 WHERE tbl <> 'outbox_lane'")
            connection.execute("ANALYZE sqlite_schema")
        found = {
            name: sorted(
                way
                for *_, way in connection.execute(f"EXPLAIN QUERY PLAN {texts[name]}", PARAMETERS)
                if way.startswith(("SCAN", "SEARCH")) and "json_each" not in way and "subquery" not in way
            )
            for name in SQLITE_WAYS
        }
        connection.execute("ROLLBACK")
    assert found == SQLITE_WAYS


async def test_a_claim_on_sqlite_takes_fewer_steps_than_there_are_published_rows(big_file: Path) -> None:
    """Steps of SQLite's own machine: one pass over the table would take several for each row."""
    every, rounds = 1_000, 0

    def count() -> int:
        nonlocal rounds
        rounds += 1
        return 0

    async with SQLiteStore(big_file) as store:
        taken = await store.lanes.take("relay", limit=64, lease=timedelta(hours=1), lost=lost, now=NOON)
        lanes = {lane.lane: lane.epoch for lane in taken}
        await store._writer.run(lambda tx: tx.set_progress_handler(count, every))
        claims = await store.outbox.claim("relay", lanes, limit=LIMIT, now=NOON)
        await store.outbox.settle(
            [Settlement(claim, {one.seq: Published() for one in claim.messages}) for claim in claims], now=NOON
        )
        await store._writer.run(lambda tx: tx.set_progress_handler(None, every))
        await store.lanes.release("relay", lanes)
    assert sum(len(claim.messages) for claim in claims) == LIMIT
    assert rounds * every < PUBLISHED / 4
