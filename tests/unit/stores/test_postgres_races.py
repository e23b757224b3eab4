"""Two transactions at the same moment: what the locks are there for. Each race is laid out step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import psycopg
import pytest
from tests.unit.stores.inside import inside

from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Published, Retry, Settlement
from postroom.errors import StoreUnavailable
from postroom.stores.postgres import PostgresStore
from postroom.stores.sql.files import render, statements
from postroom.testing.contracts._case import LEASE, NOON, SECOND, a_message, a_relay, lost, put, seqs, statuses


@pytest.fixture
async def store(postgres_database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_database) as store:
        await store.schema.migrate()
        yield store


class Waiting:
    """A call that is expected to wait for a lock."""

    def __init__(self, url: str, call: Awaitable[object]) -> None:
        self._url = url
        self._task = asyncio.ensure_future(call)

    async def until_it_waits(self) -> None:
        """Return once PostgreSQL says that somebody waits for a lock."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as watcher:
            for _ in range(500):
                found = await watcher.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
                if (await found.fetchone() or (0,))[0]:
                    return
                assert not self._task.done(), f"it did not wait: {self._task.result()}"
                await asyncio.sleep(0.01)
        raise AssertionError("nobody waits for a lock")

    async def result(self) -> object:
        return await asyncio.wait_for(self._task, 10)


async def test_a_take_passes_by_a_lane_that_is_being_claimed_from(store: PostgresStore, postgres_database: str) -> None:
    """Otherwise the claim would be written for an epoch that is over, and nobody would ever settle it."""
    (seq,) = await put(store, "a")
    relay = await a_relay(store, "relay-a")
    later = NOON + 2 * LEASE
    async with store._connections.transaction() as slow:
        claims = await inside(store.outbox.claim, slow, "relay-a", relay.lanes, limit=10, now=NOON)
        assert seqs(claims) == [seq]
        # SKIP LOCKED: the lane that is being claimed from is passed by; the others are there for the taking.
        taken = await store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later)
        assert len(taken) == 0
    taken = await store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later)
    assert len(taken) == len(relay.lanes)
    assert await statuses(store, seq) == ["failed"], "the take saw the claim and let it go"


async def test_two_claims_of_one_relay_wait_for_each_other(store: PostgresStore, postgres_database: str) -> None:
    """A share lock would let both claims read the same rows."""
    written = await put(store, "a", "b")
    relay = await a_relay(store)
    async with store._connections.transaction() as slow:
        first = await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=10, now=NOON)
        second = Waiting(postgres_database, relay.claim())
        await second.until_it_waits()
    assert seqs(first) == written
    assert await second.result() == []


async def test_a_claim_after_a_claim_and_its_settle_reads_what_is_true_now(
    store: PostgresStore, postgres_database: str
) -> None:
    """The second claim waited while the first was made, sent and settled: it must not send the same again."""
    await put(store, "a")
    relay = await a_relay(store)
    async with store._connections.transaction() as slow:
        first = await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=10, now=NOON)
        second = Waiting(postgres_database, relay.claim())
        await second.until_it_waits()
        await inside(
            store.outbox.settle, slow, [Settlement(claim, {seqs([claim])[0]: Published()}) for claim in first], now=NOON
        )
    assert await second.result() == []


async def test_a_settle_that_waited_for_a_take_changes_nothing(store: PostgresStore, postgres_database: str) -> None:
    """The take and the settle both want the claim row, so one of them waits for the other."""
    (seq,) = await put(store, "a")
    zombie = await a_relay(store, "relay-a")
    claims = await zombie.claim()
    later = NOON + 2 * LEASE
    async with store._connections.transaction() as slow:
        await inside(store.lanes.take, slow, "relay-b", limit=1000, lease=LEASE, lost=lost, now=later)
        settle = Waiting(postgres_database, zombie.settle(claims, now=later))
        await settle.until_it_waits()
    assert await settle.result() == "lost"
    assert await statuses(store, seq) == ["failed"]
    (record,) = await store.ops.find(Query())
    assert record.attempts == 1


async def test_a_take_that_waited_for_a_settle_counts_nothing(store: PostgresStore, postgres_database: str) -> None:
    (seq,) = await put(store, "a")
    relay = await a_relay(store, "relay-a")
    claims = await relay.claim()
    later = NOON + 2 * LEASE
    async with store._connections.transaction() as slow:
        await inside(store.outbox.settle, slow, [Settlement(claim, {seq: Published()}) for claim in claims], now=NOON)
        take = Waiting(postgres_database, store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later))
        await take.until_it_waits()
    await take.result()
    (record,) = await store.ops.find(Query())
    assert (record.status, record.attempts) == ("published", 1)


async def test_a_settle_does_not_wait_for_the_heartbeat(store: PostgresStore) -> None:
    """No lock on the lane is needed to settle: a slow renew must not hold up the work, nor the work the renew."""
    await put(store, "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    async with store._connections.transaction() as slow:
        await inside(store.lanes.renew, slow, relay.owner, relay.lanes, lease=LEASE, now=NOON)
        assert await asyncio.wait_for(relay.settle(claims), 10) == "settled"


async def test_renewing_and_claiming_never_deadlock(store: PostgresStore) -> None:
    """Both lock many lanes; both lock them in order."""
    await put(store, *(f"k{number}" for number in range(40)))
    relay = await a_relay(store)
    backwards = dict(reversed(relay.lanes.items()))

    async def renew() -> None:
        for _ in range(20):
            assert await store.lanes.renew(relay.owner, backwards, lease=LEASE, now=NOON) == frozenset(relay.lanes)

    async def claim() -> None:
        for _ in range(20):
            claims = await relay.claim(limit=5)
            if claims:
                await relay.settle(claims)

    await asyncio.wait_for(asyncio.gather(renew(), claim(), renew(), claim()), 60)


async def requeue_during_a_claim(store: PostgresStore, url: str) -> None:
    """R25: a message is claimed between the look at it and the requeue."""
    (seq,) = await put(store, "a")
    relay = await a_relay(store)
    await relay.settle(await relay.claim(), Retry(SECOND, "TIMEOUT"))
    later = NOON + 2 * SECOND
    async with store._connections.transaction() as slow:
        claims = await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=10, now=later)
        assert seqs(claims) == [seq]
        requeue = Waiting(url, store.ops.requeue(Query(key="a")))
        await requeue.until_it_waits()
    assert await requeue.result() == 0
    (record,) = await store.ops.find(Query())
    assert (record.status, record.attempts) == ("sending", 1)


async def test_a_message_claimed_while_a_person_requeues_it_is_left_alone(
    store: PostgresStore, postgres_database: str
) -> None:
    await requeue_during_a_claim(store, postgres_database)


async def test_without_looking_again_the_requeue_would_touch_it(store: PostgresStore, postgres_database: str) -> None:
    """The guard in `still`, taken away: the race above is what it is there for."""
    sql = statements("postroom.stores.postgres", "sql/ops.sql")["still"]
    lines = [line for line in sql.splitlines() if "-- guard: nothing in flight" not in line]
    assert len(lines) < len(sql.splitlines())
    store._statements.texts["still"] = render("\n".join(lines), "pyformat", TableNames())[0]
    with pytest.raises(AssertionError):
        await requeue_during_a_claim(store, postgres_database)


async def test_a_late_commit_with_an_earlier_seq_is_claimed(store: PostgresStore, postgres_database: str) -> None:
    """Two real connections: the one that wrote first commits last (R1, R15)."""
    relay = await a_relay(store)
    insert = "INSERT INTO outbox (type, key, payload) VALUES ('order.paid', %s, '{}') RETURNING seq"
    async with (
        await psycopg.AsyncConnection.connect(postgres_database) as slow,
        await psycopg.AsyncConnection.connect(postgres_database) as quick,
    ):
        (early,) = await (await slow.execute(insert, ["a"])).fetchone() or (None,)
        (late,) = await (await quick.execute(insert, ["b"])).fetchone() or (None,)
        await quick.commit()
        assert early is not None
        assert late is not None
        assert early < late
        claims = await relay.claim()
        assert seqs(claims) == [late]
        await relay.settle(claims)
        await slow.commit()
    assert await relay.seqs() == [early]


async def test_a_late_commit_goes_before_what_was_written_after_it(store: PostgresStore) -> None:
    """The early one committed before the last one was begun, so it goes first, though others went meanwhile."""
    relay = await a_relay(store)
    async with store.outbox.transaction() as slow:
        early = a_message(key="a", data="early")
        await slow.write([early], TableNames())
        await store.outbox.put([a_message(key="b")])
        await relay.settle(await relay.claim())
    await store.outbox.put([a_message(key="a", data="last")])
    (claim,) = await relay.claim()
    assert [claimed.message.data for claimed in claim.messages] == ["early", "last"]


@pytest.mark.parametrize("step", ["claim", "settle", "take"])
async def test_a_relay_that_freezes_inside_a_transaction_does_not_keep_its_lanes(
    store: PostgresStore, step: str
) -> None:
    """Stopped there it would hold its locks for as long as it is stopped, whatever the lease says: a take passes by
    locked lanes, and waits for a claim that is being settled. The server ends such a transaction."""
    (seq,) = await put(store, "a")
    frozen = await a_relay(store, "relay-a")
    claims = await frozen.claim() if step != "claim" else []
    later = NOON + 2 * LEASE

    async def freeze() -> None:
        async with store._connections.transaction() as connection:
            if step == "claim":
                assert seqs(
                    await inside(store.outbox.claim, connection, "relay-a", frozen.lanes, limit=10, now=NOON)
                ) == [seq]
            elif step == "settle":
                await inside(
                    store.outbox.settle,
                    connection,
                    [Settlement(claim, {seq: Published()}) for claim in claims],
                    now=NOON,
                )
            else:
                await inside(store.lanes.take, connection, "relay-c", limit=1000, lease=LEASE, lost=lost, now=later)
            taken: list[int] = []
            async with asyncio.timeout(60):
                while len(taken) < len(frozen.lanes):
                    lanes = await store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later)
                    taken += [lane.lane for lane in lanes]
                    await asyncio.sleep(0.1)

    with pytest.raises(StoreUnavailable):
        await freeze()
    assert await statuses(store, seq) == ["pending" if step == "claim" else "failed"]
