"""What is special about handling in a transaction on MongoDB."""

# ruff: noqa: PT012 - what is refused here is a whole transaction
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from pymongo import MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import AutoReconnect, DuplicateKeyError, OperationFailure
from tests.conformance.inbox.desks import MongoDesk, mongo_desk
from tests.servers.mongod import Mongod
from tests.unit.stores.homes import drop_tables

from postroom.config.tables import TableNames
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import SchemaMismatch, StoreError, StoreUnavailable
from postroom.stores import open_store
from postroom.stores.mongo import inbox as mongo_inbox
from postroom.stores.mongo import schema
from postroom.stores.mongo.schema import MongoSchema, Step
from postroom.testing.contracts._case import a_message
from postroom.testing.contracts.inbox import an_event

TWO = {1: Step("0001_outbox", (MongoSchema.make_outbox,)), 2: Step("0002_inbox", (MongoSchema.make_inbox,))}
"""As if the inbox had come in a second migration."""
LOW = Identity("shop", UUID(int=1))


@pytest.fixture
async def desk(mongo_database: str) -> AsyncIterator[MongoDesk]:
    async with mongo_desk(mongo_database) as desk:
        yield desk


def effects(session: Any) -> Any:
    return session.client.get_default_database().effects


# ── whole, or not ──


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_a_transaction_that_the_handler_ended_is_not_whole(desk: MongoDesk, end: str) -> None:
    with pytest.raises(StoreError, match="over before its end"):
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            assert tx.is_whole()
            await getattr(tx.handle, end)()
            assert not tx.is_whole()


async def test_the_same_for_a_sync_handler(desk: MongoDesk) -> None:
    with pytest.raises(StoreError, match="over before its end"), desk.store.blocking() as tx:
        tx.remember("billing", [LOW])
        assert tx.is_whole()
        tx.handle.commit_transaction()
        assert not tx.is_whole()


async def test_an_error_that_the_handler_keeps_to_itself_is_not_taken_for_done(desk: MongoDesk) -> None:
    """The server rolled all of it back. It is the handler's fault, so it counts: else it would be tried for ever."""
    with pytest.raises(StoreError, match="went on after an error") as caught:
        async with desk.store.transaction() as tx:
            await tx.remember("billing", [LOW])
            with suppress(DuplicateKeyError):
                for _ in range(2):
                    await effects(tx.handle).insert_one({"_id": 1, "name": "twice"}, session=tx.handle)
    assert not isinstance(caught.value, StoreUnavailable)
    with pytest.raises(StoreError, match="went on after an error") as caught, desk.store.blocking() as blocking:
        blocking.remember("billing", [LOW])
        with suppress(DuplicateKeyError):
            for _ in range(2):
                effects(blocking.handle).insert_one({"_id": 1, "name": "twice"}, session=blocking.handle)
    assert not isinstance(caught.value, StoreUnavailable)
    assert await desk.store.counts() == {}
    assert list(await desk.effects()) == []


# ── second to another transaction ──


async def test_a_conflict_of_the_handlers_own_comes_out_as_the_driver_said_it(desk: MongoDesk) -> None:
    async with desk.store.transaction() as first:
        await first.remember("billing", [LOW])
        await effects(first.handle).insert_one({"_id": 1, "name": "first"}, session=first.handle)
        with pytest.raises(OperationFailure) as caught:
            async with desk.store.transaction() as second:
                await second.remember("billing", [an_event()])
                await effects(second.handle).insert_one({"_id": 1, "name": "second"}, session=second.handle)
        assert caught.value.has_error_label("TransientTransactionError")
    assert list(await desk.effects()) == ["first"]
    assert await desk.store.counts() == {"billing": {"handled": 1}}


async def test_remembering_second_after_other_work_is_the_database_away(desk: MongoDesk) -> None:
    async with desk.store.transaction() as first:
        await first.remember("billing", [LOW])
        with pytest.raises(StoreUnavailable, match="busy with another transaction"):
            async with desk.store.transaction() as second:
                await desk.write(second.handle, "before")
                await second.remember("billing", [LOW])
    assert list(await desk.effects()) == []


@pytest.mark.parametrize("how", ["transaction", "blocking"])
async def test_nobody_waits_for_ever(desk: MongoDesk, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(mongo_inbox, "PATIENCE_SECONDS", 0.3)

    def second() -> None:
        with desk.store.blocking() as tx:
            tx.remember("billing", [LOW])

    async with desk.store.transaction() as first:
        await first.remember("billing", [LOW])
        with pytest.raises(StoreUnavailable, match="busy with another transaction"):
            if how == "blocking":
                await asyncio.to_thread(second)
            else:
                async with desk.store.transaction() as tx:
                    await tx.remember("billing", [LOW])


async def test_of_many_that_bury_and_count_at_once_none_is_refused(desk: MongoDesk) -> None:
    delivery = Delivery(a_message(), "shop", "orders")
    await asyncio.gather(*(desk.store.bury("billing", delivery, "OOPS", "no luck") for _ in range(8)))
    assert await desk.store.counts() == {"billing": {"dead": 1}}
    event = an_event()
    attempts = await asyncio.gather(*(desk.store.failed("mailing", event, "OOPS", "no luck") for _ in range(8)))
    assert sorted(attempts) == list(range(1, 9))


# ── the server ──


async def test_a_server_that_dies_in_a_transaction_is_the_database_away(mongo_server: Mongod) -> None:
    async with mongo_desk(mongo_server.url.replace("/?", "/shop?serverSelectionTimeoutMS=3000&")) as desk:
        with pytest.raises(StoreUnavailable):
            async with desk.store.transaction() as tx:
                await tx.remember("billing", [LOW])
                await asyncio.to_thread(mongo_server.kill)
                with pytest.raises(AutoReconnect):
                    await desk.write(tx.handle, "never")
                assert tx.is_away()
                await desk.write(tx.handle, "never")
        await asyncio.to_thread(mongo_server.start_again)
        async with desk.store.transaction() as tx:
            assert await tx.remember("billing", [LOW]) == {LOW}
        assert list(await desk.effects()) == []


async def test_a_commit_of_which_nobody_knows_is_repeated_and_nothing_else(
    desk: MongoDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[str] = []
    commit, commit_async = ClientSession.commit_transaction, AsyncClientSession.commit_transaction

    def unsure(kind: str) -> None:
        """It is committed, but the answer is lost, the first time."""
        commits.append(kind)
        if commits.count(kind) == 1:
            raise OperationFailure("who knows", 64, {"errorLabels": ["UnknownTransactionCommitResult"]})

    def unsure_commit(session: ClientSession) -> None:
        commit(session)
        unsure("sync")

    async def unsure_commit_async(session: AsyncClientSession) -> None:
        await commit_async(session)
        unsure("async")

    monkeypatch.setattr(ClientSession, "commit_transaction", unsure_commit)
    monkeypatch.setattr(AsyncClientSession, "commit_transaction", unsure_commit_async)
    async with desk.store.transaction() as tx:
        assert await tx.remember("billing", [LOW])
        await desk.write(tx.handle, "async")
    with desk.store.blocking() as blocking:
        assert blocking.remember("mailing", [LOW])
        desk.write_blocking(blocking.handle, "sync")
    assert commits == ["async", "async", "sync", "sync"]
    assert sorted(await desk.effects()) == ["async", "sync"]


async def test_a_standalone_server_is_refused_with_the_remedy(mongo_standalone_database: str) -> None:
    async with open_store(mongo_standalone_database) as opened:
        inbox = opened.inbox
        with pytest.raises(StoreError, match=r"standalone server.*--replSet rs0"):
            async with inbox.transaction():
                pass
        with pytest.raises(StoreError, match=r"standalone server.*--replSet rs0"), inbox.blocking():
            pass


# ── the collections ──


@pytest.fixture
def here(mongo_database: str) -> Iterator[Any]:
    """The database, as somebody else sees it."""
    with MongoClient[dict[str, Any]](mongo_database) as client:
        yield client.get_default_database()


async def test_collections_of_an_earlier_postroom_are_refused_until_they_are_migrated(
    mongo_database: str, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(mongo_database) as store:
        first = await store.schema.migrate()
        assert (first.before, first.after, list(first.applied)) == (0, 1, ["0001_postroom"])
        await drop_tables(mongo_database, TableNames())
        monkeypatch.setattr(schema, "STEPS", TWO)
        first = await store.schema.migrate()
        assert (first.before, first.after, list(first.applied)) == (0, 2, ["0001_outbox", "0002_inbox"])
        for name in ("inbox", "inbox_dead"):
            here[name].drop()
        here["outbox_schema"].delete_one({"_id": 2})
        here["outbox_counter"].update_one({}, {"$unset": {"inbox": ""}})
        await store.outbox.put([a_message()])
        with pytest.raises(SchemaMismatch, match=r"at version 1, .* needs 2: run `postroom init --store .*`"):
            await store.schema.check()
        migrated = await store.schema.migrate()
        assert (migrated.before, migrated.after, list(migrated.applied)) == (1, 2, ["0002_inbox"])
        await store.schema.check()
        assert await store.schema.migrate() == type(migrated)(before=2, after=2, applied=[])
    assert here["outbox"].count_documents({}) == 1
    assert set(here["inbox"].index_information()) == {"_id_", "_id.consumer_1_at_1"}


@pytest.mark.parametrize("name", ["inbox", "inbox_dead"])
async def test_an_inbox_of_somebody_else_is_refused_and_kept(mongo_database: str, here: Any, name: str) -> None:
    here[name].insert_one({"letter": 7})
    async with open_store(mongo_database) as store:
        for _ in range(2):
            with pytest.raises(SchemaMismatch, match=rf"table .{name}. in .* did not make.* --table-prefix postroom"):
                await store.schema.migrate()
    assert here[name].count_documents({}) == 1
    async with open_store(mongo_database, tables=TableNames(prefix="postroom")) as store:
        await store.schema.migrate()
        await store.schema.check()


async def test_what_is_dropped_is_of_this_prefix_alone(mongo_database: str, here: Any) -> None:
    made: dict[str, set[str]] = {}
    for prefix in ("outbox", "post"):
        before = set(here.list_collection_names())
        async with open_store(mongo_database, tables=TableNames(prefix=prefix)) as store:
            await store.schema.migrate()
        made[prefix] = set(here.list_collection_names()) - before
        assert TableNames(prefix=prefix).name("inbox_dead") in made[prefix]
    for prefix, its_own in made.items():
        before = set(here.list_collection_names())
        await drop_tables(mongo_database, TableNames(prefix=prefix))
        assert before - set(here.list_collection_names()) == its_own
