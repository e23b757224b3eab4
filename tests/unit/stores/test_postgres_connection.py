"""Connections that break, servers that are away, poolers that lend another connection each time."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.servers.databases import in_database
from tests.servers.ports import free_port
from tests.unit.stores.homes import PostgresHome, columns

from postroom.config.values import TableNames
from postroom.contracts.inbox import DeadQuery
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Claim, Published, Retry, Settlement
from postroom.contracts.transport import Delivery
from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.postgres import PostgresStore
from postroom.stores.postgres.connections import AT_ONCE, Connection, Connections
from postroom.testing.contracts._case import NOON, SECOND, a_message, a_relay, put, seqs


@pytest.fixture
async def store(postgres_home: PostgresHome) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_home.url) as store:
        await store.schema.migrate()
        yield store


def cut(home: PostgresHome) -> int:
    """End every other connection to this database, and wait until they are gone; how many there were."""
    name = urlsplit(home.url).path[1:]
    with psycopg.connect(in_database(home.url, "postgres"), autocommit=True) as admin:
        ended = admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name]
        ).fetchall()
    assert all(columns(ended))
    return len(ended)


# ── cut ──


async def test_connections_cut_between_transactions_are_replaced(
    store: PostgresStore, postgres_home: PostgresHome
) -> None:
    await asyncio.gather(*(put(store, "a") for _ in range(5)))
    assert cut(postgres_home) >= 2
    assert len(await store.ops.find(Query())) == 5
    await put(store, "a")
    assert len(await store.ops.find(Query())) == 6


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_connection_cut_in_a_transaction_is_a_transient_error_and_nothing_is_half_done(
    store: PostgresStore, postgres_home: PostgresHome, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    (first,) = await put(store, "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    real = type(store._statements).run

    async def cutting(self: object, connection: Connection, name: str, /, **parameters: object) -> object:
        if name == "retry" and moment == "before":
            cut(postgres_home)
        done = await real(self, connection, name, **parameters)  # type: ignore[arg-type]
        if name == "retry" and moment == "after":
            cut(postgres_home)
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


async def test_a_put_whose_connection_is_cut_writes_nothing(store: PostgresStore, postgres_home: PostgresHome) -> None:
    async def write() -> None:
        async with store.outbox.transaction() as handle:
            await handle.write([a_message()], TableNames())
            cut(postgres_home)

    with pytest.raises(StoreUnavailable) as caught:
        await write()
    assert caught.value.transient
    assert await store.ops.find(Query()) == []


async def test_an_error_of_the_callers_own_passes_through_untouched(store: PostgresStore) -> None:
    async def write() -> None:
        async with store.outbox.transaction() as handle:
            await handle.write([a_message()], TableNames())
            raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        await write()
    assert await store.ops.find(Query()) == []


STUCK = """
SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE NOT l.granted AND d.datname = current_database()"""


async def test_a_cancelled_call_leaves_nothing_and_the_store_usable(
    store: PostgresStore, postgres_home: PostgresHome
) -> None:
    """More calls than there are connections, each stuck behind a lock, each cancelled."""
    with psycopg.connect(postgres_home.url) as other:
        other.execute("LOCK TABLE outbox")
        waiting = [asyncio.create_task(store.outbox.put([a_message()])) for _ in range(AT_ONCE + 3)]
        while not other.execute(STUCK).fetchall():
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
    assert await store.ops.find(Query()) == []
    await asyncio.gather(*(put(store, "a") for _ in range(AT_ONCE + 3)))
    assert len(await store.ops.find(Query())) == AT_ONCE + 3


# ── away ──


async def fails(url: str, ask: Callable[[PostgresStore], Awaitable[object]]) -> StoreUnavailable:
    """What a store at this URL says when it is asked."""
    async with PostgresStore(url) as store:
        with pytest.raises(StoreUnavailable) as caught:
            await ask(store)
    said = str(caught.value)
    assert "\n" not in said
    assert caught.value.transient
    assert said.endswith(".")
    return caught.value


async def migrated(store: PostgresStore) -> None:
    await store.schema.migrate()


async def checked(store: PostgresStore) -> None:
    await store.schema.check()


async def opened(store: PostgresStore) -> None:
    async with store.outbox.transaction():
        pass


ASKED = pytest.mark.parametrize("ask", [migrated, checked, opened])


@ASKED
async def test_a_wrong_password_is_one_sentence_without_it(
    postgres_locked_url: str, ask: Callable[[PostgresStore], Awaitable[object]]
) -> None:
    url = postgres_locked_url.replace("the-right-password", "a-wr0ng-one")
    said = await fails(url, ask)
    assert "password authentication failed" in str(said)
    assert "a-wr0ng-one" not in f"{said!r} {said.facts}"


async def test_the_right_password_lets_us_in(postgres_locked_url: str) -> None:
    async with PostgresStore(postgres_locked_url) as store:
        with pytest.raises(StoreError, match="postroom init") as caught:
            await store.schema.check()
    assert "the-right-password" not in str(caught.value)


@ASKED
async def test_a_server_that_is_away_is_one_sentence(ask: Callable[[PostgresStore], Awaitable[object]]) -> None:
    port = free_port()
    said = await fails(f"postgresql://app:s3cret@127.0.0.1:{port}/shop", ask)
    assert f"postgresql://app:***@127.0.0.1:{port}/shop cannot be used" in str(said)
    assert "s3cret" not in f"{said!r} {said.facts}"


@ASKED
async def test_an_unknown_database_is_one_sentence(
    postgres_url: str, ask: Callable[[PostgresStore], Awaitable[object]]
) -> None:
    said = await fails(in_database(postgres_url, "nowhere"), ask)
    assert 'database "nowhere" does not exist' in str(said)


async def test_a_user_without_rights_is_told_to_get_them(
    store: PostgresStore, postgres_home: PostgresHome, postgres_locked_url: str
) -> None:
    url = in_database(postgres_locked_url, urlsplit(postgres_home.url).path[1:])
    async with PostgresStore(url) as locked:
        with pytest.raises(StoreError, match="permission denied for table outbox; grant") as caught:
            await locked.outbox.put([a_message()])
    assert not caught.value.transient


# ── closed ──


async def test_closing_twice_is_once(store: PostgresStore) -> None:
    await put(store, "a")
    await store.close()
    await store.close()


async def test_a_closed_store_says_so(store: PostgresStore) -> None:
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.schema.check()
    with pytest.raises(StoreError, match="is closed"):
        await opened(store)


async def test_a_connection_in_use_while_the_store_closes_is_closed_when_it_is_given_back(
    postgres_home: PostgresHome,
) -> None:
    store = PostgresStore(postgres_home.url)
    async with store.outbox.transaction():
        await store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(connection.closed for connection in store._connections._idle)
        del store
        gc.collect()


# ── poolers ──


async def test_claims_and_settles_go_on_behind_a_pooler_that_lends_another_connection_each_time(
    pgbouncer_database: str,
) -> None:
    async with PostgresStore(pgbouncer_database) as store:
        await store.schema.migrate()
        relay = await a_relay(store)
        used: set[int] = set()
        for number in range(20):
            written = await asyncio.gather(*(put(store, f"{number}-{key}") for key in range(4)))
            claims = await relay.claim()
            assert seqs(claims) == sorted(seq for one in written for seq in one)
            settlements = [Settlement(claim, {one.seq: Published() for one in claim.messages}) for claim in claims]
            half = len(settlements) // 2
            answers = await asyncio.gather(
                store.outbox.settle(settlements[:half]), store.outbox.settle(settlements[half:])
            )
            assert {answer for each in answers for answer in each.values()} == {"settled"}
            used |= await servers(store)
    assert len(used) > 1


async def servers(store: PostgresStore) -> set[int]:
    """Which server processes three transactions at once were given."""

    async def one(connection: Connection) -> int:
        row = await (await connection.execute("SELECT pg_backend_pid()", prepare=False)).fetchone()
        assert row is not None
        return int(row[0])

    return set(await asyncio.gather(*(store._connections.run(one) for _ in range(3))))


async def prepared_by(connections: Connections, times: int = 10) -> int:
    """How many statements are prepared where the last of so many transactions ran."""

    async def ask(connection: Connection) -> int:
        await connection.execute("SELECT %s::int", [1])
        row = await (await connection.execute("SELECT count(*) FROM pg_prepared_statements", prepare=False)).fetchone()
        assert row is not None
        return int(row[0])

    return [await connections.run(ask) for _ in range(times)][-1]


async def test_behind_a_pooler_nothing_is_ever_prepared(pgbouncer_database: str) -> None:
    """There the name of a statement may be another's, who lends the same server connection: and it would be carried out."""
    async with PostgresStore(pgbouncer_database) as store:
        assert await prepared_by(store._connections) == 0


async def test_without_a_pooler_statements_are_prepared(postgres_database: str) -> None:
    async with PostgresStore(postgres_database) as store:
        assert await prepared_by(store._connections) == 1


async def test_transactions_of_the_caller_go_on_behind_a_pooler(pgbouncer_database: str) -> None:
    """They cannot be run again, so nothing in them may depend on what another server connection has prepared."""

    async def write(store: PostgresStore) -> None:
        async with store.outbox.transaction() as handle:
            for _ in range(3):
                await handle.write([a_message()], TableNames())

    async with PostgresStore(pgbouncer_database) as store:
        await store.schema.migrate()
        for _ in range(5):
            await write(store)
        with psycopg.connect(pgbouncer_database) as other:
            other.execute("SELECT 1")  # and now it has the server connection that was lent to us
            await write(store)
        assert len(await store.ops.find(Query())) == 18


async def test_a_pooler_that_forgets_prepared_statements_is_recognised(
    store: PostgresStore, postgres_home: PostgresHome
) -> None:
    """As behind any pooler: the statement that was prepared is not there any more."""
    relay = await a_relay(store)
    for _ in range(6):
        await put(store, "a")
        await relay.settle(await relay.claim())
    (connection,) = store._connections._idle
    prepared = await (await connection.execute("SELECT count(*) FROM pg_prepared_statements")).fetchone()
    assert prepared is not None
    assert prepared[0] > 0
    connection.pgconn.exec_(b"DEALLOCATE ALL")
    (seq,) = await put(store, "b")
    assert await relay.seqs() == [seq]
    assert await relay.drain() == []


# ── durability ──


async def test_a_claim_is_durable_even_where_the_role_is_not(postgres_home: PostgresHome) -> None:
    """A claim that reads rows whose commit is not on disk yet makes them durable with its own."""
    name = urlsplit(postgres_home.url).path[1:]
    postgres_home.sql(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    async with PostgresStore(postgres_home.url) as store:
        await store.schema.migrate()
        await put(store, "a")
        relay = await a_relay(store)
        seen: list[str] = []
        claiming: Any = store.outbox._claiming
        real: Callable[..., Awaitable[list[Claim]]] = claiming._claim_lines

        async def looking(connection: Connection, *args: Any) -> list[Claim]:
            row = await (await connection.execute("SHOW synchronous_commit")).fetchone()
            assert row is not None
            seen.append(row[0])
            return await real(connection, *args)

        claiming._claim_lines = looking  # to look in the middle of a transaction
        assert len(await relay.claim(now=NOON)) == 1
        assert seen == ["on"]

        async def show(connection: Connection) -> object:
            return await (await connection.execute("SHOW synchronous_commit")).fetchone()

        assert await store._connections.run(show) == ("off",)


# ── encodings ──


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "WIN1251"])
async def test_a_roles_encoding_is_not_ours(postgres_home: PostgresHome, encoding: str) -> None:
    name = urlsplit(postgres_home.url).path[1:]
    postgres_home.sql(f'ALTER DATABASE "{name}" SET client_encoding = {encoding}')
    async with PostgresStore(postgres_home.url) as store:
        await store.schema.migrate()
        await store.outbox.put([a_message(key="☃ ключ", data="𝄞 é")])
        relay = await a_relay(store)
        claims = await relay.claim()
        (claimed,) = claims[0].messages
        assert (claimed.message.key, claimed.message.data) == ("☃ ключ", "𝄞 é")
        assert await relay.settle(claims, Retry(SECOND, "OOPS", "☃ ключ")) == "settled"
        (record,) = await store.ops.find(Query())
        assert record.last_error == "☃ ключ"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_roles_encoding_is_not_the_inboxs(postgres_home: PostgresHome, encoding: str) -> None:
    async with PostgresStore(postgres_home.url) as store:
        await store.schema.migrate()
    name = urlsplit(postgres_home.url).path[1:]
    postgres_home.sql(f'ALTER DATABASE "{name}" SET client_encoding = {encoding}')
    async with PostgresStore(postgres_home.url) as store:
        inbox = store.inbox
        await inbox.bury("billing", Delivery(a_message(key="☃ ключ"), "shop", "orders"), "OOPS", "☃")
        (dead,) = await inbox.dead(DeadQuery(key="☃ ключ"))
        assert dead.error == "☃"
        async with inbox.transaction() as tx:
            assert tx.handle.info.encoding == "utf-8"
        with inbox.blocking() as blocking:
            assert blocking.handle.info.encoding == "utf-8"
