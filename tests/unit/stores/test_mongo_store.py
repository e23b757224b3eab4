"""What is MongoDB's own: strangers' documents, the indexes behind each hot query, the watch, URLs and errors."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import WriteError

from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Claim
from postroom.errors import ConfigError, DuplicateMessage, SchemaMismatch, StoreError, StoreUnavailable
from postroom.message import Message
from postroom.stores.mongo import MongoStore
from postroom.stores.mongo.careful_claim import CarefulClaim
from postroom.stores.mongo.collections import among
from postroom.stores.mongo.connections import Session
from postroom.stores.mongo.settle import Settling
from postroom.stores.mongo.watch import news
from postroom.stores.selection import Choice
from postroom.testing.contracts._case import LEASE, NOON, Relay, a_message, a_relay, put, statuses


@pytest.fixture(autouse=True)
def _forgive_the_drivers_sockets() -> Iterator[None]:
    """A client of PyMongo that is closed while it connects leaves that socket to the garbage collector, which warns of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
async def store(mongo_database: str) -> AsyncIterator[MongoStore]:
    async with MongoStore(mongo_database, lanes=4) as store:
        await store.schema.migrate()
        yield store


def by_hand(url: str, *documents: dict[str, Any]) -> None:
    with MongoClient[dict[str, Any]](url) as client:
        for document in documents:
            client.get_default_database()["outbox"].insert_one(document)


async def test_a_document_written_by_hand_is_a_whole_message(store: MongoStore, mongo_database: str) -> None:
    by_hand(mongo_database, *({"type": "order.paid", "key": "7", "payload": {"n": number}} for number in range(20)))
    relay = await a_relay(store)
    assert await store.outbox.peek(relay.lanes)
    claims = await relay.claim()
    came = [claimed.message for claim in claims for claimed in claim.messages]
    assert [message.data["n"] for message in came] == list(range(20))
    assert {message.type for message in came} == {"order.paid"}
    assert len({message.id for message in came}) == 20
    await relay.settle(claims)
    assert len(await store.ops.find(Query(ids=[came[3].id], status="published"))) == 1


async def test_headers_and_times_written_by_hand_are_read(store: MongoStore, mongo_database: str) -> None:
    by_hand(mongo_database, {"type": "a", "payload": "text", "headers": {"x-a": "1", "x-b": 2}})
    (record,) = await store.ops.find(Query())
    assert (record.message.headers, record.message.body) == ({"x-a": "1", "x-b": "2"}, b"text")
    assert record.message.time is not None


@pytest.mark.parametrize(
    "bad", [{}, {"type": ""}, {"type": 7}, {"type": "a", "key": 7}, {"type": "a", "due_at": "soon"}]
)
async def test_what_could_not_be_sent_is_refused_by_the_server(
    store: MongoStore, mongo_database: str, bad: dict[str, Any]
) -> None:
    with pytest.raises(WriteError):
        by_hand(mongo_database, dict(bad))


def index_of(plan: Any) -> set[str]:
    """The indexes that a plan reads; COLLSCAN for none."""
    text = json.dumps(plan, default=str)
    stages = [part.split('"')[0] for part in text.split('"indexName": "')[1:]]
    return set(stages) | ({"COLLSCAN"} if '"COLLSCAN"' in text else set())


async def test_every_hot_query_reads_its_own_index(store: MongoStore, mongo_database: str) -> None:
    await store.outbox.put([a_message(key=f"k{number}") for number in range(40)])
    relay = await a_relay(store)
    await relay.drain()
    await put(store, "a", "b")
    with MongoClient[dict[str, Any]](mongo_database) as client:
        outbox, hold = client.get_default_database()["outbox"], client.get_default_database()["outbox_hold"]
        queries = {
            "line_1_seq_1": outbox.find({"line": 2}).sort("seq", 1).limit(9),
            "later_1_due_at_1": outbox.find({"later": among([1, 2])}).sort("due_at", 1).limit(1),
            "behind_1_seq_1": outbox.find({"behind": "a"}).sort("seq", 1).limit(9),
            "parks_1": outbox.find({"parks": among(["a"])}),
            "seq_1": outbox.find({"seq": among([1, 2, 3]), "outcome": None}),
            "lane_1_until_1": hold.find({"lane": among([1]), "until": {"$type": "date"}}).sort("until", 1).limit(1),
        }
        for name, query in queries.items():
            assert index_of(query.explain()["queryPlanner"]["winningPlan"]) == {name}
        strangers = outbox.find({"seq": None}).limit(1).explain()["queryPlanner"]["winningPlan"]
        assert index_of(strangers) == {"seq_1"}
        # What was published is in no index but those by place and id.
        line = outbox.find({"line": {"$exists": True}}).hint([("line", 1), ("seq", 1)]).explain()
        assert line["executionStats"]["totalKeysExamined"] == 2


async def test_the_lines_are_looked_up_by_their_index(store: MongoStore, mongo_database: str) -> None:
    await put(store, *(f"k{number}" for number in range(40)))
    with MongoClient[dict[str, Any]](mongo_database) as client:
        database = client.get_default_database()
        before = {each["name"]: each["accesses"]["ops"] for each in database["outbox"].aggregate([{"$indexStats": {}}])}
        assert await store.outbox._claiming._read(None, [0, 1], 9)
        after = {each["name"]: each["accesses"]["ops"] for each in database["outbox"].aggregate([{"$indexStats": {}}])}
    assert after["line_1_seq_1"] > before["line_1_seq_1"]


async def test_a_watch_whose_database_is_dropped_says_so(store: MongoStore) -> None:
    stands = asyncio.Event()
    watching = asyncio.create_task(store.outbox.watch(stands.set))
    await stands.wait()
    await store.outbox.connections.client.drop_database(store.outbox.connections.database.name)
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(10):
            await watching


async def test_a_watch_ends_soon_when_cancelled(store: MongoStore) -> None:
    stands = asyncio.Event()
    watching = asyncio.create_task(store.outbox.watch(stands.set))
    await stands.wait()
    watching.cancel()
    async with asyncio.timeout(4):
        await asyncio.wait([watching])
    assert watching.cancelled()


async def test_settling_is_no_news(store: MongoStore) -> None:
    """Else a busy relay would wake itself, and the others, once for every message that it sent."""
    await put(store, *("a" for _ in range(5)))
    relay = await a_relay(store)
    async with await store.outbox.connections.database.watch(
        news(store.outbox.collections), max_await_time_ms=200
    ) as stream:
        await relay.settle(await relay.claim())
        assert await stream.try_next() is None
        await put(store, "b")
        assert await stream.try_next() is not None


async def test_a_known_id_is_refused_in_a_transaction_of_the_stores_own_too(store: MongoStore) -> None:
    message = a_message()
    await store.outbox.put([message])
    with pytest.raises(DuplicateMessage):
        async with store.outbox.transaction() as handle:
            await handle.write([message], TableNames())
    assert len(await store.ops.find(Query())) == 1


@pytest.mark.parametrize("url", ["mongodb://db", "mongodb://db:27017/", "mongodb://user:secret@db?replicaSet=rs0"])
def test_a_url_without_a_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="names no database") as refused:
        MongoStore(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("option", ["postroom_transactions=maybe", "postroom_transaction=off", "Postroom_Dead"])
def test_an_option_of_ours_that_says_nothing_we_know_is_refused(option: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{option}, which Postroom does not know; there are postroom_transactions=on or off"
    ):
        MongoStore(f"mongodb://db/shop?w=1&{option}")


async def test_without_transactions_there_is_no_inbox() -> None:
    async with MongoStore("mongodb://app:secret@db/shop?postroom_transactions=off") as store:
        with pytest.raises(
            ConfigError, match="needs transactions, and postroom_transactions=off is in its URL"
        ) as refused:
            _ = store.inbox
    assert "secret" not in str(refused.value)


async def test_a_server_that_is_away_is_unavailable_in_one_sentence() -> None:
    url = "mongodb://app:secret@127.0.0.1:1/shop?serverSelectionTimeoutMS=200"
    async with MongoStore(url) as store:
        with pytest.raises(StoreUnavailable, match="check that it runs") as away:
            await store.schema.check()
    assert "secret" not in str(away.value)
    assert "\n" not in str(away.value)


async def test_tables_that_are_not_there_or_not_ours_are_told(mongo_database: str) -> None:
    async with MongoStore(mongo_database) as store:
        with pytest.raises(SchemaMismatch, match="postroom init"):
            await store.schema.check()
        with pytest.raises(SchemaMismatch, match="postroom init"):
            await store.outbox.put([Message("a")])
        by_hand(mongo_database, {"type": "a"})
        with pytest.raises(SchemaMismatch, match="Postroom did not make"):
            await store.schema.migrate()


async def test_a_closed_store_says_so(mongo_database: str) -> None:
    store = MongoStore(mongo_database)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.lanes.all()


async def test_what_a_dead_relay_had_decided_is_carried_out_by_who_comes_next(
    store: MongoStore, mongo_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between marking its claims and writing the messages."""
    written = await put(store, "a", "b", "a")
    relay = await a_relay(store)
    claims = await relay.claim()
    await _die_deciding(relay, claims, monkeypatch)
    assert await statuses(store, *written) == ["sending"] * 3
    assert await relay.seqs() == [], "its lanes are busy until then"
    later = NOON + 2 * LEASE
    successor = await a_relay(store, "relay-b", now=later)
    assert {(record.status, record.attempts) for record in await store.ops.find(Query())} == {("published", 1)}
    assert await relay.settle(claims, now=later) == "lost"
    assert await successor.seqs(now=later) == []
    assert _in_line(mongo_database) == 0


async def test_a_decision_whose_answer_was_lost_is_kept(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = await put(store, "a", "b")
    relay = await a_relay(store)
    claims = await relay.claim()
    await _die_deciding(relay, claims, monkeypatch)
    settled = claims[:1]
    assert await relay.settle(settled) == "settled", "said again"
    assert await store.outbox.claim(relay.owner, relay.lanes, limit=9, doubtful=relay.lanes) == []
    assert await statuses(store, *written) == ["published"] * 2


async def test_a_key_that_is_freed_while_it_is_walked_past_moves_again(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim puts a message behind its key's dead head, at the moment at which a person discards that head."""
    relay = await a_relay(store)
    dead, waiting = await put(store, "a", "a")
    claims = await relay.claim(limit=1)
    await relay.settle_each(claims, {dead: Buried("REJECTED")})
    put_aside = CarefulClaim._put_aside
    discarded: list[int] = []

    async def meanwhile(self: CarefulClaim, session: Session, lane: int, choice: Choice) -> None:
        if choice.behind and not discarded:
            discarded.append(await store.ops.discard(Query(status="dead")))
        await put_aside(self, session, lane, choice)

    monkeypatch.setattr(CarefulClaim, "_put_aside", meanwhile)
    came = await relay.seqs() or await relay.seqs()
    assert discarded == [1]
    assert came == [waiting], "it came at once, or with the next claim"


@pytest.mark.requirement("E2")
async def test_the_dead_are_in_a_collection_of_their_own_and_seen_as_before(
    store: MongoStore, mongo_database: str
) -> None:
    message = a_message(key="a", data={"n": 1}, headers={"x": "y"})
    await store.outbox.put([message, a_message(key="a"), a_message(key="b")])
    async with MongoStore(f"{mongo_database}&postroom_dead=collection") as apart:
        relay = await a_relay(apart)
        (dead,) = [each for each in await relay.claim() if each.messages[0].message.id == message.id]
        await relay.settle_each([dead], {dead.messages[0].seq: Buried("REJECTED", "no")})
        with MongoClient[dict[str, Any]](mongo_database) as client:
            database = client.get_default_database()
            (copy,) = database["outbox_dead"].find()
            assert (copy["_id"], copy["payload"], copy["last_error_code"]) == (str(message.id), '{"n":1}', "REJECTED")
            assert database["outbox"].count_documents({"payload": {"$exists": True}}) == 2
            for each in (apart, store):
                (found,) = await each.ops.find(Query(status="dead"))
                assert (found.message, found.parked) == (message, True)
                assert (await each.ops.counts()).by_status["dead"] == 1
            with pytest.raises(DuplicateMessage):
                await apart.outbox.put([message])
            assert await store.ops.requeue(Query(status="dead")) == 1, "by somebody whose URL does not say it"
            assert database["outbox_dead"].count_documents({}) == 0
    assert [each.message for each in await store.ops.find(Query(ids=[message.id]))] == [message]


class Died(Exception):
    """Here the relay was killed."""


async def _die(*args: object) -> None:
    raise Died


async def _die_deciding(relay: Relay, claims: Sequence[Claim], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(Settling, "_publish", _die)
        with pytest.raises(Died):
            await relay.settle(claims)


def _in_line(url: str) -> int:
    with MongoClient[dict[str, Any]](url) as client:
        return client.get_default_database()["outbox"].count_documents({"line": {"$exists": True}})
