"""Two transactions at the same moment on MariaDB: what the locks are there for, and what they must not stand in the way of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest
from tests.servers.mariadb import connect
from tests.unit.stores.homes import MariaDBHome
from tests.unit.stores.inside import inside

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Claim, Published, Retry, Settlement, Verdict
from postroom.stores.mysql import MySQLStore
from postroom.stores.sql.files import backquoted, render, statements
from postroom.testing.contracts._case import LEASE, NOON, SECOND, Relay, a_message, a_relay, lost, put, seqs, statuses

KEYS = [f"k{number}" for number in range(100)]


@pytest.fixture
async def store(mariadb_home: MariaDBHome) -> AsyncIterator[MySQLStore]:
    async with MySQLStore(mariadb_home.url) as store:
        await store.schema.migrate()
        yield store


class Waiting:
    """A call that is expected to wait for a lock."""

    def __init__(self, home: MariaDBHome, call: Awaitable[object]) -> None:
        self._home = home
        self._task = asyncio.ensure_future(call)

    async def until_it_waits(self) -> None:
        """Return once MariaDB says that one of our connections waits for a lock."""
        asked = (
            "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p "
            "ON p.id = t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = database()"
        )
        for _ in range(50):
            if self._home.sql(asked) != [(0,)]:
                return
            assert not self._task.done(), f"it did not wait: {self._task.result()}"
            await asyncio.sleep(0.15)  # MariaDB looks anew only when nobody has asked for a tenth of a second
        raise AssertionError("nobody waits for a lock")

    async def result(self) -> object:
        return await asyncio.wait_for(self._task, 10)


# ── producers ──


@pytest.mark.parametrize("waiting", [False, True])
async def test_no_claim_stands_in_a_producers_way(store: MySQLStore, mariadb_home: MariaDBHome, waiting: bool) -> None:
    """Also at a producer's REPEATABLE READ, in every lane, and with the closer look."""
    if waiting:
        await put(store, *KEYS)
        relay = await a_relay(store)
        claims = await relay.claim()
        await relay.settle_each(claims, {one.seq: Retry(SECOND, "X") for claim in claims for one in claim.messages})
    relay = await a_relay(store, "relay-b", now=NOON + 2 * LEASE)
    await put(store, *KEYS)
    async with store._connections.transaction() as slow:
        flying = await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=50, now=NOON + 2 * LEASE)
        assert len(seqs(flying)) == 50
        with connect(mariadb_home.url) as producer, producer.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
            for key in KEYS:
                cursor.execute("INSERT INTO outbox (type, `key`, payload) VALUES ('order.paid', %s, '{}')", [key])
            producer.commit()
        await inside(store.outbox.settle, slow, [_published(claim) for claim in flying], now=NOON)
        with connect(mariadb_home.url) as producer, producer.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
            for key in KEYS:
                cursor.execute("INSERT INTO outbox (type, `key`, payload) VALUES ('order.paid', %s, '{}')", [key])
            producer.commit()


async def test_no_producer_stands_in_a_claims_way(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    written = await put(store, *KEYS)
    relay = await a_relay(store)
    with connect(mariadb_home.url) as producer, producer.cursor() as cursor:
        for key in KEYS:
            cursor.execute("INSERT INTO outbox (type, `key`, payload) VALUES ('order.paid', %s, '{}')", [key])
        claims = await asyncio.wait_for(relay.claim(), 3)
        assert sorted(seqs(claims)) == written
        assert await asyncio.wait_for(relay.settle(claims), 3) == "settled"
        producer.rollback()


def _published(claim: Claim) -> Settlement:
    return Settlement(claim, {one.seq: Published() for one in claim.messages}, is_published=True)


# ── relays ──


async def test_a_take_passes_by_a_lane_that_is_being_claimed_from(store: MySQLStore) -> None:
    """Otherwise the claim would be written for an epoch that is over, and nobody would ever settle it."""
    (seq,) = await put(store, "a")
    relay = await a_relay(store, "relay-a")
    later = NOON + 2 * LEASE
    async with store._connections.transaction() as slow:
        assert seqs(await inside(store.outbox.claim, slow, "relay-a", relay.lanes, limit=10, now=NOON)) == [seq]
        assert await store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later) == []
    taken = await store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later)
    assert len(taken) == len(relay.lanes)
    assert await statuses(store, seq) == ["failed"], "the take saw the claim and let it go"


async def test_a_claim_waits_for_no_lane_but_its_own(store: MySQLStore) -> None:
    """Two relays with half the lanes each: by a walk along the table one would wait for the other."""
    await put(store, *KEYS)
    one, other = Relay(store, "relay-a"), Relay(store, "relay-b")
    for relay in (one, other):
        assert len(await relay.take(limit=32)) == 32
    async with store._connections.transaction() as slow:
        assert await inside(store.outbox.claim, slow, one.owner, one.lanes, limit=1000, now=NOON)
        assert await asyncio.wait_for(other.claim(), 3)
        assert await asyncio.wait_for(store.lanes.renew(other.owner, other.lanes, lease=LEASE, now=NOON), 3)


async def test_two_claims_of_one_relay_wait_for_each_other(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    """A share lock would let both claims read the same rows."""
    written = await put(store, "a", "b")
    relay = await a_relay(store)
    async with store._connections.transaction() as slow:
        first = await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=10, now=NOON)
        second = Waiting(mariadb_home, relay.claim())
        await second.until_it_waits()
    assert sorted(seqs(first)) == written
    assert await second.result() == []


async def test_a_settle_that_waited_for_a_take_changes_nothing(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    """The take and the settle both want the claim row, so one of them waits for the other."""
    (seq,) = await put(store, "a")
    zombie = await a_relay(store, "relay-a")
    claims = await zombie.claim()
    later = NOON + 2 * LEASE
    async with store._connections.transaction() as slow:
        await inside(store.lanes.take, slow, "relay-b", limit=1000, lease=LEASE, lost=lost, now=later)
        settle = Waiting(mariadb_home, zombie.settle(claims, now=later))
        await settle.until_it_waits()
    assert await settle.result() == "lost"
    (record,) = await store.ops.find(Query())
    assert (record.seq, record.status, record.attempts) == (seq, "failed", 1)


async def test_a_take_that_waited_for_a_settle_counts_nothing(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    (seq,) = await put(store, "a")
    relay = await a_relay(store, "relay-a")
    claims = await relay.claim()
    later = NOON + 2 * LEASE
    async with store._connections.transaction() as slow:
        await inside(store.outbox.settle, slow, [Settlement(claim, {seq: Published()}) for claim in claims], now=NOON)
        take = Waiting(mariadb_home, store.lanes.take("relay-b", limit=1000, lease=LEASE, lost=lost, now=later))
        await take.until_it_waits()
    await take.result()
    (record,) = await store.ops.find(Query())
    assert (record.status, record.attempts) == ("published", 1)


async def test_a_settle_of_what_was_sent_does_not_wait_for_the_heartbeat(store: MySQLStore) -> None:
    await put(store, "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    async with store._connections.transaction() as slow:
        await inside(store.lanes.renew, slow, relay.owner, relay.lanes, lease=LEASE, now=NOON)
        assert await asyncio.wait_for(relay.settle(claims), 3) == "settled"


@pytest.mark.parametrize("verdict", [Retry(SECOND, "TIMEOUT"), Buried("REJECTED")])
async def test_a_settle_that_fails_a_key_and_a_requeue_of_that_key_leave_nobody_behind(
    store: MySQLStore, mariadb_home: MariaDBHome, verdict: Verdict
) -> None:
    """One holds the key while the other, which saw it free, would let it go: then it waited for ever."""
    dead, last = await put(store, "a", "a")
    relay = await a_relay(store)
    await relay.settle_each(await relay.claim(), {dead: Buried("REJECTED", park=False)})
    claims = await relay.claim()
    assert seqs(claims) == [last]
    async with store._connections.transaction() as slow:
        await inside(store.outbox.settle, slow, [Settlement(claim, {last: verdict}) for claim in claims], now=NOON)
        requeue = Waiting(mariadb_home, store.ops.requeue(Query(status="dead")))
        await requeue.until_it_waits()
    await requeue.result()
    await store.ops.requeue(Query(key="a"))
    assert sorted(await relay.drain(now=NOON + 10 * SECOND)) == [dead, last]


async def test_renewing_claiming_and_settling_never_deadlock_for_long(store: MySQLStore) -> None:
    """Lanes are locked in order; where InnoDB still sees a circle, the loser runs again."""
    await put(store, *KEYS)
    relay = await a_relay(store)
    backwards = dict(reversed(relay.lanes.items()))

    async def renew() -> None:
        for _ in range(20):
            assert await store.lanes.renew(relay.owner, backwards, lease=LEASE, now=NOON) == frozenset(relay.lanes)

    async def claim() -> None:
        for _ in range(20):
            if claims := await relay.claim(limit=5):
                await relay.settle(claims, Retry(SECOND, "TIMEOUT"))

    await asyncio.wait_for(asyncio.gather(renew(), claim(), renew(), claim()), 60)


async def requeue_during_a_claim(store: MySQLStore, home: MariaDBHome) -> None:
    """R25: a message is claimed between the look at it and the requeue."""
    (seq,) = await put(store, "a")
    relay = await a_relay(store)
    await relay.settle(await relay.claim(), Retry(SECOND, "TIMEOUT"))
    later = NOON + 2 * SECOND
    async with store._connections.transaction() as slow:
        assert seqs(await inside(store.outbox.claim, slow, relay.owner, relay.lanes, limit=10, now=later)) == [seq]
        requeue = Waiting(home, store.ops.requeue(Query(key="a")))
        await requeue.until_it_waits()
    assert await requeue.result() == 0
    (record,) = await store.ops.find(Query())
    assert (record.status, record.attempts) == ("sending", 1)


async def test_a_message_claimed_while_a_person_requeues_it_is_left_alone(
    store: MySQLStore, mariadb_home: MariaDBHome
) -> None:
    await requeue_during_a_claim(store, mariadb_home)


async def test_without_looking_again_the_requeue_would_touch_it(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    """The guard in `still`, taken away: the race above is what it is there for."""
    sql = statements("postroom.stores.mysql", "sql/ops.sql")["still"]
    without = "\n".join(line for line in sql.splitlines() if "-- guard: nothing in flight" not in line)
    assert without != sql
    store._statements.texts["still"] = backquoted(render(without, "pyformat", store._connections.tables)[0])
    with pytest.raises(AssertionError):
        await requeue_during_a_claim(store, mariadb_home)


async def test_a_late_commit_with_an_earlier_seq_is_claimed(store: MySQLStore, mariadb_home: MariaDBHome) -> None:
    """Two real connections: the one that wrote first commits last (R1, R15)."""
    relay = await a_relay(store)
    insert = "INSERT INTO outbox (type, `key`, payload) VALUES ('order.paid', %s, '{}')"
    with connect(mariadb_home.url) as slow, connect(mariadb_home.url) as quick:
        with slow.cursor() as first, quick.cursor() as second:
            first.execute(insert, ["a"])
            second.execute(insert, ["b"])
            early, late = first.lastrowid, second.lastrowid
        quick.commit()
        assert early < late
        claims = await relay.claim()
        assert seqs(claims) == [late]
        await relay.settle(claims)
        slow.commit()
    assert await relay.seqs() == [early]


async def test_a_late_commit_goes_before_what_was_written_after_it(store: MySQLStore) -> None:
    """The early one committed before the last one was begun, so it goes first, though others went meanwhile."""
    relay = await a_relay(store)
    async with store.outbox.transaction() as slow:
        await slow.write([a_message(key="a", data="early")], store._connections.tables)
        await store.outbox.put([a_message(key="b")])
        await relay.settle(await relay.claim())
    await store.outbox.put([a_message(key="a", data="last")])
    (claim,) = await relay.claim()
    assert [claimed.message.data for claimed in claim.messages] == ["early", "last"]


@pytest.mark.parametrize("step", ["claim", "settle", "take"])
async def test_a_relay_that_freezes_inside_a_transaction_does_not_keep_its_lanes(store: MySQLStore, step: str) -> None:
    """Stopped there it would hold its locks for as long as it is stopped: the server ends such a transaction."""
    (seq,) = await put(store, "a")
    frozen = await a_relay(store, "relay-a")
    claims = await frozen.claim() if step != "claim" else []
    later = NOON + 2 * LEASE

    async def freeze() -> None:
        async with store._connections._transaction() as connection:
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

    with pytest.raises(Exception, match=r"Lost connection|gone away"):
        await freeze()
    assert await statuses(store, seq) == ["pending" if step == "claim" else "failed"]
