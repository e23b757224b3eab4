"""PyMongo's sessions: the message commits with the document, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from postroom.config.values import TableNames
from postroom.contracts.ops import Query
from postroom.errors import ConfigError, DuplicateMessage, NotInTransaction, SchemaMismatch, StoreError, UnknownHandle
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.stores import open_store

PAID = Message("order.paid", key="7", data={"amount": 12})


@pytest.fixture
async def shop(mongo_database: str) -> str:
    async with open_store(mongo_database) as store:
        await store.schema.migrate()
    with MongoClient[dict[str, Any]](mongo_database) as client:
        client.get_default_database().create_collection("orders")
    return mongo_database


@pytest.fixture
def client(shop: str) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](shop) as client:
        yield client


async def written(url: str) -> tuple[int, list[Message]]:
    """How many orders and which messages everybody sees."""
    with MongoClient[dict[str, Any]](url) as client:
        orders = client.get_default_database()["orders"].count_documents({})
    async with open_store(url) as store:
        return orders, [record.message for record in await store.ops.find(Query())]


@pytest.mark.requirement("A1", "E4")
async def test_a_message_commits_with_the_document(shop: str, client: MongoClient[dict[str, Any]]) -> None:
    with client.start_session() as session, session.start_transaction():
        client.get_default_database()["orders"].insert_one({"amount": 12}, session=session)
        Outbox().put(session, PAID)
    assert await written(shop) == (1, [PAID])


@pytest.mark.requirement("A1", "E4")
async def test_a_message_is_rolled_back_with_the_document(shop: str, client: MongoClient[dict[str, Any]]) -> None:
    with client.start_session() as session:
        session.start_transaction()
        client.get_default_database()["orders"].insert_one({"amount": 12}, session=session)
        Outbox().put_many(session, [PAID, Message("order.sent", key="7")])
        session.abort_transaction()
    assert await written(shop) == (0, [])


async def test_a_callback_that_runs_again_writes_once(shop: str, client: MongoClient[dict[str, Any]]) -> None:
    runs = []

    def order(session: Any) -> None:
        Outbox().put(session, PAID)
        runs.append(1)
        if len(runs) == 1:
            from pymongo.errors import OperationFailure

            raise OperationFailure("met another", 112, {"errorLabels": ["TransientTransactionError"]})

    with client.start_session() as session:
        session.with_transaction(order)
    assert len(runs) == 2
    assert await written(shop) == (0, [PAID])


async def test_an_async_session_commits_and_rolls_back(shop: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](shop) as client, client.start_session() as session:
        async with await session.start_transaction():
            await client.get_default_database()["orders"].insert_one({"amount": 12}, session=session)
            await Outbox().put(session, PAID)
        await session.start_transaction()
        await Outbox().put(session, Message("order.lost", key="7"))
        await session.abort_transaction()
    assert await written(shop) == (1, [PAID])


async def test_a_session_outside_a_transaction_is_refused_with_the_remedy(
    shop: str, client: MongoClient[dict[str, Any]]
) -> None:
    with client.start_session() as session, pytest.raises(NotInTransaction, match=r"with session\.start_transaction"):
        Outbox().put(session, PAID)
    async with AsyncMongoClient[dict[str, Any]](shop) as aclient, aclient.start_session() as asession:
        with pytest.raises(NotInTransaction, match=r"async with await session\.start_transaction"):
            await Outbox().put(asession, PAID)
    assert await written(shop) == (0, [])


async def test_a_known_id_or_idempotency_key_is_told(client: MongoClient[dict[str, Any]]) -> None:
    once = Message("order.paid", idempotency_key="pay-7")
    with client.start_session() as session:
        with session.start_transaction():
            Outbox().put_many(session, [PAID, once])
        for twice in (PAID, once.replace(id="018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")):
            session.start_transaction()
            with pytest.raises(DuplicateMessage, match="already in the outbox"):
                Outbox().put(session, twice)
            session.abort_transaction()


async def test_many_of_which_one_is_known_write_nothing(shop: str, client: MongoClient[dict[str, Any]]) -> None:
    from pymongo.errors import OperationFailure

    with client.start_session() as session:
        with session.start_transaction():
            Outbox().put(session, PAID)
        session.start_transaction()
        with pytest.raises(DuplicateMessage):
            Outbox().put_many(session, [Message("order.sent", key="7"), PAID])
        with pytest.raises(OperationFailure, match="aborted"):  # the server has given it up
            session.commit_transaction()
    assert await written(shop) == (0, [PAID])


@pytest.mark.parametrize(
    ("has_database", "error", "remedy"), [(True, SchemaMismatch, "postroom init"), (False, ConfigError, "schema")]
)
async def test_missing_collections_and_databases_are_told(
    mongo_database: str, mongo_url: str, has_database: bool, error: type[Exception], remedy: str
) -> None:
    with (
        MongoClient[dict[str, Any]](mongo_database if has_database else mongo_url) as client,
        client.start_session() as session,
    ):
        session.start_transaction()
        with pytest.raises(error, match=remedy):
            Outbox().put(session, PAID)


async def test_the_tables_may_name_the_database(shop: str, mongo_url: str) -> None:
    name = shop.partition("?")[0].rpartition("/")[2]
    with (
        MongoClient[dict[str, Any]](mongo_url) as client,
        client.start_session() as session,
        session.start_transaction(),
    ):
        Outbox(tables=TableNames(schema=name)).put(session, PAID)
    assert await written(shop) == (0, [PAID])


async def test_a_client_is_no_handle_and_says_what_is(client: MongoClient[dict[str, Any]]) -> None:
    with pytest.raises(UnknownHandle, match="start_session"):
        Outbox().put(client, PAID)  # type: ignore[call-overload]  # that is the test


async def test_a_database_is_taken_only_by_whoever_says_so(shop: str, client: MongoClient[dict[str, Any]]) -> None:
    database = client.get_default_database()
    with pytest.raises(NotInTransaction, match="without_transactions=True"):
        Outbox().put(database, PAID)
    Outbox(without_transactions=True).put(database, PAID)
    async with AsyncMongoClient[dict[str, Any]](shop) as aclient:
        again = PAID.replace(id="018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
        await Outbox(without_transactions=True).put(aclient.get_default_database(), again)
    assert await written(shop) == (0, [PAID, again])


async def test_a_standalone_server_is_refused_with_the_remedy(mongo_standalone_database: str) -> None:
    async with open_store(mongo_standalone_database) as store:
        for refused in (store.schema.migrate, store.schema.check):
            with pytest.raises(StoreError, match=r"--replSet rs0 and run rs\.initiate\(\).*postroom_transactions=off"):
                await refused()
    with MongoClient[dict[str, Any]](mongo_standalone_database) as client, client.start_session() as session:
        client.get_default_database()["outbox_counter"].insert_one({"_id": "seq", "seq": 0, "lanes": 4})
        with pytest.raises(StoreError, match="--replSet rs0"), session.start_transaction():
            Outbox().put(session, PAID)
