"""Many published rows behind on MariaDB, and no statement of the hot path reads them, whatever the statistics say.

Each statement is explained as the store itself runs it, with its own parameters; and the rows that a whole round of a relay
reads are counted by the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.stores.homes import MariaDBHome

from postroom.config.values import TableNames
from postroom.contracts.outbox import Buried, Expired, Published, Retry, Settlement, Verdict
from postroom.stores.mysql import MySQLStore
from postroom.stores.mysql.connection import Connection
from postroom.stores.mysql.lanes import Lanes
from postroom.stores.mysql.outbox import OutboxFlow
from postroom.stores.mysql.statements import Statements
from postroom.testing.contracts._case import NOON, lost

PUBLISHED, OPEN, LIMIT = 50_000, 2_000, 100
FILL = f"""
INSERT INTO outbox (id, type, key, payload, settled_at, outcome, attempts)
SELECT concat('00000000-0000-7000-8000-', lpad(hex(seq), 12, '0')), 'order.paid', concat('k', seq % 1000), '{{}}',
    utc_timestamp(6), 'published', 1
FROM seq_1_to_{PUBLISHED}"""
WAITING = f"""
INSERT INTO outbox (type, key, payload, due_at, shelf)
SELECT 'order.paid', concat('k', seq % 1000), '{{}}',
    CASE WHEN seq % 50 = 0 THEN '2026-01-01' WHEN seq = 7 THEN '2099-01-01' END,
    CASE WHEN seq % 50 = 0 THEN 'time' END
FROM seq_1_to_{OPEN}"""
BY_SEQ = {("range", "PRIMARY"), ("const", "PRIMARY"), ("eq_ref", "PRIMARY")}
WAYS = {
    "line": {("ref", "outbox_line"), ("eq_ref", "PRIMARY")},
    "free_lanes": {("ref", "outbox_later"), ("range", "outbox_later")},
    "due": {("range", "outbox_later"), ("ref", "outbox_later")},
    "walk": {("ref", "outbox_line"), ("eq_ref", "PRIMARY")},
    "behind": {("ref", "outbox_aside"), ("range", "outbox_aside")},
    "waiting": {("range", "outbox_aside")},
    "peek": {("range", "outbox_line"), ("range", "outbox_later")},
    "lift_due": BY_SEQ,
    "shelve": BY_SEQ,
    "claimed": BY_SEQ,
    "publish": BY_SEQ,
    "expire": BY_SEQ,
    "bury": BY_SEQ,
    "retry": BY_SEQ,
    "lost": BY_SEQ,
}
"""How each statement may come to the rows of the outbox: the kind of access, and the index."""


class Spy(Statements):
    """Explains each statement before it runs it."""

    def __init__(self) -> None:
        super().__init__(TableNames())
        self.ways: dict[str, set[tuple[str, str]]] = {}

    async def run(self, connection: Connection, name: str, /, **parameters: Any) -> Any:
        cursor = connection.cursor()
        await cursor.execute("EXPLAIN " + self.texts[name], parameters)
        for _, _, table, kind, _, index, *_ in await cursor.fetchall():
            if table in {"outbox", "o", "d"} and kind is not None:
                self.ways.setdefault(name, set()).add((kind, index))
        return await super().run(connection, name, **parameters)


@pytest.fixture
async def store(mariadb_home: MariaDBHome) -> AsyncIterator[MySQLStore]:
    async with MySQLStore(mariadb_home.url) as store:
        await store.schema.migrate()
        mariadb_home.sql(FILL)
        mariadb_home.sql(WAITING)
        yield store


async def a_day_of_a_relay(store: MySQLStore) -> None:
    """Take, claim, settle in every way, claim again what waited, lose the lanes, release."""
    owner = "relay-a"
    taken = await store.lanes.take(owner, limit=64, lease=timedelta(hours=1), lost=lost, now=NOON)
    lanes = {lane.lane: lane.epoch for lane in taken}
    assert len(lanes) == 64
    await store.outbox.peek(lanes, now=NOON)
    claims = await store.outbox.claim(owner, lanes, limit=LIMIT, now=NOON)
    assert sum(len(claim.messages) for claim in claims) == LIMIT
    ways: list[Verdict] = [Published(), Retry(timedelta(0), "X"), Buried("Y"), Expired()]
    verdicts = {
        one.seq: ways[(number + place) % 4] if number < 24 else Published()
        for number, claim in enumerate(claims)
        for place, one in enumerate(claim.messages)
    }
    await store.outbox.settle(
        [Settlement(claim, verdicts, is_published=number >= 24) for number, claim in enumerate(claims)], now=NOON
    )
    claims = await store.outbox.claim(owner, lanes, limit=LIMIT, now=NOON)
    later = NOON + timedelta(hours=2)
    taken = await store.lanes.take(owner, limit=64, lease=timedelta(hours=1), lost=lost, now=later)
    assert len(await store.lanes.release(owner, {lane.lane: lane.epoch for lane in taken})) == 64


@pytest.mark.parametrize("state", ["never analysed", "analysed"])
async def test_no_statement_of_the_hot_path_walks_over_the_outbox(
    store: MySQLStore, mariadb_home: MariaDBHome, state: str
) -> None:
    if state == "analysed":
        mariadb_home.sql("ANALYZE TABLE outbox, outbox_lane, outbox_claim, outbox_hold")
    spy = Spy()
    store._flow, store._lanes = OutboxFlow(spy), Lanes(spy)
    await a_day_of_a_relay(store)
    assert set(spy.ways) == set(WAYS)
    assert {name: ways - WAYS[name] for name, ways in spy.ways.items() if ways - WAYS[name]} == {}


@pytest.mark.parametrize("open_rows", [10, OPEN])
async def test_lanes_and_claims_are_locked_by_their_primary_key(
    store: MySQLStore, mariadb_home: MariaDBHome, open_rows: int
) -> None:
    """These tables are small, and a small table is soon read whole: that would wait for everybody's locks."""
    for lane in range(3):
        columns = "lane, epoch, owner, seqs, claimed_at"
        mariadb_home.sql(f"INSERT INTO outbox_claim ({columns}) VALUES ({lane}, 1, 'a', '1', utc_timestamp(6))")
        mariadb_home.sql(f"INSERT INTO outbox_hold VALUES ('k{lane}', {lane}, NULL)")
    mariadb_home.sql(f"DELETE FROM outbox WHERE in_line IS NOT NULL AND seq > {PUBLISHED + open_rows}")
    lanes = tuple(range(64))
    seqs = tuple(range(PUBLISHED + 1, PUBLISHED + 1 + open_rows))
    asked = {
        "mine": {"lanes": lanes, "owner": "a", "held": tuple((lane, 1) for lane in lanes), "now": None},
        "lock_lanes": {"lanes": lanes},
        "in_flight": {"lanes": lanes},
        "flying": {"lanes": lanes, "ids": (1, 2, 3)},
        "publish": {"seqs": seqs, "now": None},
        "fence": {"listed": "[1, 2]"},
        "let_go": {"listed": "[1, 2]"},
        "drop_orphans": {"listed": "[1, 2]"},
        "free_keys": {"listed": '["a", "b"]'},
        "take": {"lanes": lanes, "owner": "a", "lease": 1, "now": None},
        "renew": {"lanes": lanes, "lease": 1, "now": None},
        "release": {"lanes": lanes},
    }

    async def explain(connection: Connection) -> dict[str, set[tuple[str, str]]]:
        found: dict[str, set[tuple[str, str]]] = {}
        cursor = connection.cursor()
        for name, parameters in asked.items():
            await cursor.execute("EXPLAIN " + store._statements.texts[name], parameters)
            found[name] = {(row[3], row[5]) for row in await cursor.fetchall() if "json_table" not in str(row[9])}
        return found

    found = await store._connections.run(explain)
    assert {
        name: ways for name, ways in found.items() if not ways <= {("range", "PRIMARY"), ("eq_ref", "PRIMARY")}
    } == {}


async def test_a_round_of_a_relay_reads_few_times_what_it_sends(store: MySQLStore) -> None:
    """Counted by the server: one pass over what was published would be fifty thousand."""
    taken = await store.lanes.take("relay", limit=64, lease=timedelta(hours=1), lost=lost, now=NOON)
    lanes = {lane.lane: lane.epoch for lane in taken}
    await _settled(store, lanes)  # the first claim lifts what became due

    async def rows_read(connection: Connection) -> int:
        cursor = connection.cursor()
        await cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'", ())
        return sum(int(number) for _, number in await cursor.fetchall())

    assert len(store._connections._idle) == 1
    before = await store._connections.ask(rows_read)
    await _settled(store, lanes)
    after = await store._connections.ask(rows_read)
    assert after - before < 20 * LIMIT


async def _settled(store: MySQLStore, lanes: dict[int, int]) -> None:
    claims = await store.outbox.claim("relay", lanes, limit=LIMIT, now=NOON)
    assert sum(len(claim.messages) for claim in claims) == LIMIT
    verdicts = {one.seq: Published() for claim in claims for one in claim.messages}
    await store.outbox.settle([Settlement(claim, verdicts, is_published=True) for claim in claims], now=NOON)
