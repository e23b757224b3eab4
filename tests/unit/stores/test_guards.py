"""Every guard in the SQL is there for a reason: take one away, and a named case of the contract fails.

The guards are the lines that end in `-- guard: …`; a new one must be given its case below. Beside them stand clauses
that cannot just be deleted: those are replaced by what a careless hand would write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest
from tests.unit.stores import test_mysql_races, test_postgres_races

from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Expired, Published, Retry, Verdict
from postroom.contracts.store import Store
from postroom.errors import StoreError
from postroom.stores.mysql import MySQLStore
from postroom.stores.postgres import PostgresStore
from postroom.stores.sql.files import backquoted, render, statements
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts import StoreContract
from postroom.testing.contracts._case import (
    MINUTE,
    NOON,
    SECOND,
    Relay,
    a_key_beside,
    a_message,
    a_relay,
    put,
    statuses,
)

FILES = ("sql/lanes.sql", "sql/outbox.sql", "sql/ops.sql")
GUARD = re.compile(r"^.*-- guard: (.*)$", re.MULTILINE)

CASES = {
    ("take", "lease ran out"): "test_a_lane_is_taken_over_when_its_lease_ran_out_and_not_before",
    ("renew", "owner"): "test_a_lane_of_another_owner_cannot_be_renewed",
    ("renew", "epoch"): "test_a_lane_retaken_by_its_old_owner_is_not_renewed_at_the_old_epoch",
    ("release", "owner"): "test_a_lane_of_another_owner_or_epoch_is_not_released",
    ("release", "epoch"): "test_a_lane_of_another_owner_or_epoch_is_not_released",
    ("release", "nothing in flight"): "test_a_lane_with_something_in_flight_is_not_released",
    ("free_lane", "owner"): "test_a_lane_of_another_owner_gives_nothing",
    ("free_lane", "epoch"): "test_a_lane_at_an_older_epoch_gives_nothing",
    ("free_lane", "nothing in flight"): "test_a_message_is_claimed_once",
    ("lock_mine", "owner"): "test_a_lane_of_another_owner_gives_nothing",
    ("lock_mine", "epoch"): "test_a_lane_at_an_older_epoch_gives_nothing",
    ("line", "nothing in flight"): "test_a_message_is_claimed_once",
    ("line", "no key waits"): "test_a_message_written_while_its_key_waits_does_not_pass",
    ("line", "nothing became due"): "test_a_message_joins_its_keys_line_when_it_becomes_due",
    ("line", "nobody who was lost"): "test_one_that_was_lost_is_still_a_suspect_when_it_was_handed_back",
    ("line", "nothing before its time"): "test_a_message_does_not_go_before_its_time",
    ("line", "nothing of a waiting key"): "test_a_message_written_while_its_key_waits_does_not_pass",
    ("walk_past", "no wait is over"): "test_a_failed_message_waits_until_it_is_due",
    ("walk_past", "nothing became due"): "beside_a_waiting_key_what_became_due_goes",
    ("walk_past", "nobody who was lost"): "beside_a_waiting_key_one_travels_alone",
    ("walk_past", "nothing before its time"): "beside_a_waiting_key_nothing_goes_before_its_time",
    ("walk_past", "nothing of a waiting key"): "test_a_message_written_while_its_key_waits_does_not_pass",
    ("claim", "nothing in flight"): "test_a_message_is_claimed_once",
    ("due_holds", "the wait is over"): "test_a_dead_head_parks_its_key",
    ("claim", "the wait is over"): "test_a_dead_head_parks_its_key",
    ("fence", "this claim"): "test_a_late_repeat_of_a_settle_does_not_touch_a_newer_claim",
    ("is_mine", "epoch"): "test_a_stale_batch_of_the_same_owner_changes_nothing",
    ("fence", "open"): "settled_by_hand_before_publish",
    ("publish", "open"): "settled_by_hand_before_a_part_is_published",
    ("expire", "open"): "settled_by_hand_before_expire",
    ("bury", "open"): "settled_by_hand_before_bury",
    ("retry", "open"): "settled_by_hand_before_retry",
    ("drop_orphans", "owner"): "test_a_doubt_about_anothers_lane_changes_nothing",
    ("drop_orphans", "epoch"): "test_a_doubt_about_anothers_lane_changes_nothing",
    ("matching", "nothing in flight, nothing of another status"): (
        "test_a_message_in_flight_is_neither_requeued_nor_discarded"
    ),
    # MariaDB and MySQL say in statements of their own what others say in a sub-select.
    ("free", "lease ran out"): "test_a_lane_is_taken_over_when_its_lease_ran_out_and_not_before",
    ("mine", "owner"): "test_a_lane_of_another_owner_gives_nothing",
    ("mine", "epoch"): "test_a_lane_at_an_older_epoch_gives_nothing",
    ("idle", "nothing in flight"): "test_a_lane_with_something_in_flight_is_not_released",
    ("free_lanes", "nothing in flight"): "test_a_message_is_claimed_once",
    ("free_lanes", "no wait is over"): "test_a_failed_message_waits_until_it_is_due",
    ("free_lanes", "nothing became due"): "test_a_message_joins_its_keys_line_when_it_becomes_due",
    ("flying", "this claim"): "test_a_late_repeat_of_a_settle_does_not_touch_a_newer_claim",
}
RACES = {("still", "nothing in flight"): "test_without_looking_again_the_requeue_would_touch_it"}
"""Only a race shows these: the test that takes them away, in test_postgres_races.py and in test_mysql_races.py."""

AnyStore: TypeAlias = SQLiteStore | PostgresStore | MySQLStore
CLOSER_LOOK = {
    "sqlite": (),
    "postgres": ("claim", "lift_due"),
    "mysql": ("walk", "due_holds", "behind", "due", "lift_due"),
}
"""The statements for lanes where something waits: what is wrong with them shows when all lanes go that way."""
SAYS_PLAIN = {"postgres": ("line", "walk_past"), "mysql": ("free_lanes",)}
PLAIN, NEVER_PLAIN = r"true(?=\n +AND NOT EXISTS.*-- guard: no (?:wait is over|key waits))", "false"

REPLACED = {
    ("sqlite", "walk"): [
        ("h.key IS NOT NULL AS held", "0 AS held", "test_a_message_written_while_its_key_waits_does_not_pass"),
        ("o.due_at > :now AS early", "0 AS early", "test_a_message_does_not_go_before_its_time"),
        ("ORDER BY o.seq\n", "ORDER BY o.seq DESC\n", "test_the_oldest_of_a_key_goes_first"),
    ],
    ("sqlite", "behind"): [
        ("ORDER BY seq", "ORDER BY seq DESC", "test_a_long_wait_is_drained_in_order_while_more_comes_in"),
    ],
    ("sqlite", "lift_due"): [
        ("ORDER BY seq", "ORDER BY due_at", "test_due_messages_keep_their_order_when_there_are_more_than_the_limit"),
    ],
    ("sqlite", "retry"): [("lost + :lost", "0 * :lost", "test_what_was_lost_twice_with_its_relay_travels_alone")],
    ("postgres", "claim"): [
        (
            "EXISTS (SELECT 1 FROM outbox_hold h WHERE h.key = o.key OFFSET 0) AS held",
            "false AS held",
            "test_a_message_written_while_its_key_waits_does_not_pass",
        ),
        ("NOT held AND NOT early", "NOT held", "test_a_message_does_not_go_before_its_time"),
        ("ORDER BY place, lane", "ORDER BY lane, place", "test_the_first_of_every_lane_goes_before_the_second_of_any"),
        ("WHERE NOT stopped AND NOT early", "WHERE NOT early", "a_head_in_backoff_stops_its_key"),
        (
            "r.seq <= coalesce((CAST(:ceilings AS bigint[]))[array_position(CAST(:capped AS integer[]), r.lane)], r.seq)",
            "CAST(:ceilings AS bigint[]) IS NOT NULL OR CAST(:capped AS integer[]) IS NOT NULL",
            "test_a_due_message_is_not_passed_when_others_of_its_lane_became_due_before_it",
        ),
        ("lane NOT IN (SELECT lane FROM crowded)", "true", "test_the_limit_is_reached_past_messages_that_have_to_wait"),
        (
            "(suspects = 0 OR (innocents = 0 AND (worst < 2 OR place = 1)))",
            "true",
            "test_what_was_lost_twice_with_its_relay_travels_alone",
        ),
        ("innocents = 0 AND", "", "test_an_innocent_does_not_travel_with_what_was_lost"),
        (
            "HAVING count(*) >= :want",
            "HAVING false",
            "test_future_messages_in_a_waiting_key_let_no_later_one_pass",
        ),
    ],
    ("postgres", "line"): [
        ("ORDER BY seq\n", "ORDER BY seq DESC\n", "test_the_oldest_of_a_key_goes_first"),
    ],
    ("postgres", "lift_due"): [
        ("ORDER BY seq", "ORDER BY due_at", "test_due_messages_keep_their_order_when_there_are_more_than_the_limit"),
    ],
    ("mysql", "walk"): [
        ("h.`key` IS NOT NULL AS held", "false AS held", "test_a_message_written_while_its_key_waits_does_not_pass"),
        ("coalesce(o.due_at > :now, false)", "false AND :now", "test_a_message_does_not_go_before_its_time"),
        ("ORDER BY seq LIMIT", "ORDER BY seq DESC LIMIT", "test_the_oldest_of_a_key_goes_first"),
    ],
    ("mysql", "one_line"): [
        ("ORDER BY seq LIMIT", "ORDER BY seq DESC LIMIT", "test_the_oldest_of_a_key_goes_first"),
    ],
    ("mysql", "behind"): [
        ("ORDER BY seq", "ORDER BY seq DESC", "test_a_long_wait_is_drained_in_order_while_more_comes_in"),
    ],
    ("mysql", "due"): [
        ("ORDER BY seq", "ORDER BY due_at", "test_due_messages_keep_their_order_when_there_are_more_than_the_limit"),
    ],
    ("mysql", "retry"): [("o.lost + :lost", "0 * :lost", "test_what_was_lost_twice_with_its_relay_travels_alone")],
    ("postgres", "retry"): [
        (
            "lost + :lost",
            "0 * :lost",
            "test_what_was_lost_twice_with_its_relay_travels_alone",
        ),
    ],
}


# ── cases that need more than the contract ──


async def _settled_by_hand(store: Store, verdict: Verdict) -> None:
    """A person closed the row with an UPDATE of their own while it was in flight: that is what stands."""
    (seq,) = await put(store, "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    await execute(store, "UPDATE outbox SET outcome = 'discarded', settled_at = created_at")
    assert await relay.settle(claims, verdict) == "settled"
    assert await statuses(store, seq) == ["discarded"]


async def settled_by_hand_before_publish(store: Store) -> None:
    await _settled_by_hand(store, Published())


async def settled_by_hand_before_a_part_is_published(store: Store) -> None:
    """A claim that is not published whole is recorded message by message."""
    first, second = await put(store, "a", "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    await execute(store, f"UPDATE outbox SET outcome = 'discarded', settled_at = created_at WHERE seq = {first}")
    await relay.settle_each(claims, {first: Published()})
    assert await statuses(store, first, second) == ["discarded", "pending"]


async def settled_by_hand_before_expire(store: Store) -> None:
    await _settled_by_hand(store, Expired())


async def settled_by_hand_before_bury(store: Store) -> None:
    await _settled_by_hand(store, Buried("REJECTED"))


async def settled_by_hand_before_retry(store: Store) -> None:
    await _settled_by_hand(store, Retry(SECOND, "TIMEOUT"))
    assert (await store.ops.find(Query()))[0].attempts == 0


async def a_head_in_backoff_stops_its_key(store: Store) -> None:
    """Whatever the hold says: a head that is not due lets nothing of its key pass."""
    first, second = await put(store, "a", "a")
    relay = await a_relay(store)
    await relay.settle_each(await relay.claim(), {first: Retry(MINUTE, "TIMEOUT")})
    assert await relay.seqs() == []
    await execute(store, "UPDATE outbox_hold SET until = (SELECT min(created_at) FROM outbox)")
    assert await relay.seqs() == [], f"{second} passed {first}"


async def _beside_a_waiting_key(store: Store) -> tuple[Relay, str]:
    """A relay, and a key in whose lane another one waits."""
    relay = await a_relay(store)
    beside = await a_key_beside(relay, "a")
    (head,) = await put(store, "a")
    await relay.settle_each(await relay.claim(), {head: Retry(60 * MINUTE, "TIMEOUT")})
    return relay, beside


async def beside_a_waiting_key_what_became_due_goes(store: Store) -> None:
    relay, beside = await _beside_a_waiting_key(store)
    await store.outbox.put([a_message(key=beside, not_before=NOON + SECOND)])
    assert await relay.seqs() == []
    assert len(await relay.seqs(now=NOON + 2 * SECOND)) == 1


async def beside_a_waiting_key_nothing_goes_before_its_time(store: Store) -> None:
    relay, beside = await _beside_a_waiting_key(store)
    await store.outbox.put([a_message(key=beside, not_before=NOON + SECOND)])
    assert await relay.seqs() == []


async def beside_a_waiting_key_one_travels_alone(store: Store) -> None:
    relay, beside = await _beside_a_waiting_key(store)
    _, alone, _ = await put(store, beside, beside, beside)
    await execute(store, f"UPDATE outbox SET lost = 1 WHERE seq = {alone}")
    for lost in (0, 1, 0):
        (claim,) = await relay.claim()
        assert (claim.lost, len(claim.messages)) == (lost, 1)
        await relay.settle([claim])


async def execute(store: Store, sql: str) -> None:
    """Run SQL as a stranger would, in a transaction of its own."""
    if isinstance(store, SQLiteStore):
        await store._writer.run(lambda connection: connection.execute(sql))
    elif isinstance(store, PostgresStore):
        await store._connections.run(lambda connection: connection.execute(sql))
    elif isinstance(store, MySQLStore):
        await store._connections.run(lambda connection: connection.cursor().execute(sql))


OWN_CASES: dict[str, Callable[[Store], Awaitable[None]]] = {
    case.__name__: case
    for case in (
        settled_by_hand_before_publish,
        settled_by_hand_before_a_part_is_published,
        settled_by_hand_before_expire,
        settled_by_hand_before_bury,
        settled_by_hand_before_retry,
        a_head_in_backoff_stops_its_key,
        beside_a_waiting_key_what_became_due_goes,
        beside_a_waiting_key_nothing_goes_before_its_time,
        beside_a_waiting_key_one_travels_alone,
    )
}


async def run(case: str, store: Store) -> None:
    if case in OWN_CASES:
        await OWN_CASES[case](store)
    else:
        await dict(inspect.getmembers(StoreContract))[case](StoreContract(), store)


# ── the stores, whole and mutilated ──


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "post.db") as store:
        await store.schema.migrate()
        yield store


@pytest.fixture
async def postgres(postgres_database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database) as store:
        await store.schema.migrate()
        yield store


@pytest.fixture
async def mysql(mariadb_database: str) -> AsyncIterator[MySQLStore]:
    async with MySQLStore(mariadb_database) as store:
        await store.schema.migrate()
        yield store


def texts(dialect: str) -> dict[str, str]:
    """Every statement of a store, as written."""
    return {name: sql for file in FILES for name, sql in statements(f"postroom.stores.{dialect}", file).items()}


def guards(dialect: str) -> list[tuple[str, str, str]]:
    """Every guard of a store that has a case: the statement's name, the guard's, and the statement without it."""
    return [
        (name, match[1], sql[: match.start()] + sql[match.end() :])
        for name, sql in texts(dialect).items()
        for match in GUARD.finditer(sql)
        if (name, match[1]) not in RACES
    ]


def replaced(dialect: str) -> list[tuple[str, str, str]]:
    """Every replacement for a store: the statement's name, its case, and the statement with the wrong clause."""
    return [
        (name, case, texts(dialect)[name].replace(right, wrong))
        for (where, name), clauses in REPLACED.items()
        for right, wrong, case in clauses
        if where == dialect
    ]


@pytest.mark.parametrize(("dialect", "races"), [("postgres", test_postgres_races), ("mysql", test_mysql_races)])
def test_what_only_a_race_shows_is_taken_away_among_the_races(dialect: str, races: ModuleType) -> None:
    for (name, guard), test in RACES.items():
        assert guard in GUARD.findall(texts(dialect)[name])
        assert inspect.iscoroutinefunction(getattr(races, test))


def test_every_clause_to_replace_is_there() -> None:
    for (dialect, name), clauses in REPLACED.items():
        for right, _, _ in clauses:
            assert right in texts(dialect)[name]
    assert all(re.search(PLAIN, texts(dialect)[name]) for dialect, names in SAYS_PLAIN.items() for name in names)


def mutilate(store: AnyStore, name: str, sql: str) -> None:
    text = render(sql, "named" if isinstance(store, SQLiteStore) else "pyformat", TableNames())[0]
    store._statements.texts[name] = backquoted(text) if isinstance(store, MySQLStore) else text


def never_plain(store: AnyStore) -> None:
    """Let every claim take the closer look, which is for lanes where something waits."""
    dialect = store.capabilities.name
    for name in SAYS_PLAIN[dialect]:
        mutilate(store, name, re.sub(PLAIN, NEVER_PLAIN, texts(dialect)[name]))


def names(values: list[tuple[str, str, str]]) -> list[str]:
    return [f"{name}: {what}" for name, what, _ in values]


@pytest.mark.parametrize(("name", "guard", "sql"), guards("sqlite"), ids=names(guards("sqlite")))
async def test_sqlite_without_a_guard_is_caught(sqlite: SQLiteStore, name: str, guard: str, sql: str) -> None:
    await _is_caught(sqlite, name, sql, CASES[name, guard])


@pytest.mark.parametrize(("name", "guard", "sql"), guards("postgres"), ids=names(guards("postgres")))
async def test_postgres_without_a_guard_is_caught(postgres: PostgresStore, name: str, guard: str, sql: str) -> None:
    await _is_caught(postgres, name, sql, CASES[name, guard])


@pytest.mark.parametrize(("name", "case", "sql"), replaced("sqlite"), ids=names(replaced("sqlite")))
async def test_sqlite_with_a_wrong_clause_is_caught(sqlite: SQLiteStore, name: str, case: str, sql: str) -> None:
    await _is_caught(sqlite, name, sql, case)


@pytest.mark.parametrize(("name", "case", "sql"), replaced("postgres"), ids=names(replaced("postgres")))
async def test_postgres_with_a_wrong_clause_is_caught(postgres: PostgresStore, name: str, case: str, sql: str) -> None:
    await _is_caught(postgres, name, sql, case)


@pytest.mark.parametrize(("name", "guard", "sql"), guards("mysql"), ids=names(guards("mysql")))
async def test_mariadb_without_a_guard_is_caught(mysql: MySQLStore, name: str, guard: str, sql: str) -> None:
    await _is_caught(mysql, name, sql, CASES[name, guard])


@pytest.mark.parametrize(("name", "case", "sql"), replaced("mysql"), ids=names(replaced("mysql")))
async def test_mariadb_with_a_wrong_clause_is_caught(mysql: MySQLStore, name: str, case: str, sql: str) -> None:
    await _is_caught(mysql, name, sql, case)


async def _is_caught(store: AnyStore, name: str, sql: str, case: str) -> None:
    if name in CLOSER_LOOK[store.capabilities.name]:
        never_plain(store)
    mutilate(store, name, sql)
    with pytest.raises((AssertionError, StoreError, ValueError)):
        await run(case, store)


@pytest.mark.parametrize("case", OWN_CASES)
async def test_the_cases_of_our_own_pass_on_whole_stores(
    sqlite: SQLiteStore, postgres: PostgresStore, mysql: MySQLStore, case: str
) -> None:
    await run(case, sqlite)
    await run(case, postgres)
    await run(case, mysql)
