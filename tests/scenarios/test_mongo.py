"""MongoDB is killed under load and started again, and services die between two writes: nothing is lost, order is kept."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError
from tests.scenarios.conftest import url_of
from tests.servers import mongo
from tests.servers.mongod import Mongod, Second, mongod_of_my_own

from postroom import Message, Outbox, Relay, Route, open_store
from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.errors import DuplicateMessage, StoreUnavailable
from postroom.events import Event, LanesLost, Listeners
from postroom.outbox.reconciler import Reconciler
from postroom.testing.journal import Delivery, Name, Run, check
from postroom.testing.waiting import until_async
from postroom.transports.local import LocalPublisher

KEYS = 5


@pytest.fixture(autouse=True)
def _forgive_the_drivers_sockets() -> Iterator[None]:
    """A client of PyMongo that is closed while it connects leaves that socket to the garbage collector, which warns of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Shop:
    """Writes an order and its message in one transaction, again and again, whatever the server does."""

    def __init__(self, url: str) -> None:
        self.url, self.stop = url, threading.Event()
        self.done: list[int] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        self._thread.join()

    def _run(self) -> None:
        with MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=20_000) as client:
            number = 0
            while not self.stop.is_set():
                with suppress(PyMongoError), client.start_session() as session:
                    session.with_transaction(lambda tx, number=number: self._order(client, tx, number))  # type: ignore[misc]  # a default of a lambda
                    self.done.append(number)
                number += 1
                time.sleep(0.002)

    def _order(self, client: MongoClient[dict[str, Any]], session: Any, number: int) -> None:
        client.get_default_database()["orders"].insert_one({"number": number}, session=session)
        Outbox().put(session, Message("order.paid", key=_name(number).key, data=number))


@pytest.mark.timeout(180)
async def test_a_server_that_is_killed_under_load_loses_nothing_and_keeps_the_order(mongo_server: Mongod) -> None:
    url = mongo_server.url.replace("/?", "/shop?")
    came: list[int] = []

    async def deliver(message: Message) -> None:
        came.append(message.data)

    async with open_store(url) as store:
        await store.schema.migrate()
        with MongoClient[dict[str, Any]](url) as client:
            client.get_default_database().create_collection("orders")
        relay = Relay(store, [Route(to=LocalPublisher(deliver))])
        running = asyncio.create_task(relay.run())
        with Shop(url) as shop:
            for _ in range(2):
                await asyncio.sleep(2)
                await asyncio.to_thread(mongo_server.kill)
                await asyncio.sleep(0.5)
                await asyncio.to_thread(mongo_server.start_again)
            await asyncio.sleep(2)
        with MongoClient[dict[str, Any]](url) as client:
            orders = {each["number"] for each in client.get_default_database()["orders"].find()}
        assert len(orders) > 50
        assert set(shop.done) <= orders, "an order was acknowledged and is gone"
        async with asyncio.timeout(90):
            while orders - set(came):
                await asyncio.sleep(0.2)
        relay.stop()
        await running
        records = await store.ops.find(Query())
    check(
        Run(
            put=[_name(number) for number in sorted(orders)],
            journal=[Delivery(_name(number)) for number in came],
            found={_name(record.message.data): record.status for record in records},
            # Each try that was counted is one fault, but the last.
            faults={_name(record.message.data): record.attempts - 1 for record in records},
        )
    )
    assert {record.status for record in records} == {"published"}


@pytest.mark.timeout(180)
async def test_a_set_without_its_majority_for_longer_than_a_lease_is_waited_for(mongo_server: Mongod) -> None:
    """It steps down, takes no writes, and comes back: the relay lets its lanes go, and takes them anew."""
    came, lost, lease = list[int](), list[int](), timedelta(seconds=5)

    async def deliver(message: Message) -> None:
        came.append(message.data)

    def heard(event: Event) -> None:
        if isinstance(event, LanesLost):
            lost.extend(event.lanes)

    with mongod_of_my_own(mongo.program(), Second) as second:
        second.join(mongo_server)
        url = mongo_server.url.replace("/?", "/shop?serverSelectionTimeoutMS=1000&")
        async with open_store(url) as store, open_store(url) as heartbeat:
            await store.schema.migrate()
            routes, config = [Route(to=LocalPublisher(deliver))], RelayConfig(lease=lease)
            relay = Relay(store, routes, config=config, heartbeat=heartbeat, listeners=Listeners(heard))
            running = asyncio.create_task(relay.run())
            await store.outbox.put([Message("order.paid", key="a", data=number) for number in range(20)])
            await until_async(lambda: len(came) == 20)
            await asyncio.to_thread(second.kill)
            with pytest.raises(StoreUnavailable):
                await _put_for_ever(store)
            await asyncio.sleep(1.5 * lease.total_seconds())
            assert not running.done(), "the relay ended, though no message is at fault"
            await asyncio.to_thread(second.start_again)
            await _put_at_last(store, [Message("order.paid", key="a", data=number) for number in range(20, 40)])
            records = await store.ops.find(Query())
            await until_async(lambda: {record.message.data for record in records} <= set(came))
            relay.stop()
            await running
            records = await store.ops.find(Query())
    assert lost, "it kept lanes that it could not renew"
    assert {record.status for record in records} == {"published"}
    assert [number for number in dict.fromkeys(came) if number < 1_000] == list(range(40))


async def _put_for_ever(store: Store) -> None:
    async with asyncio.timeout(60):
        for number in itertools.count(1_000):
            await store.outbox.put([Message("order.paid", key="b", data=number)])


async def _put_at_last(store: Store, messages: list[Message]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await store.outbox.put(messages)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            except DuplicateMessage:  # it was written, and the answer was lost
                return
            else:
                return


def _name(number: int) -> Name:
    return Name(f"k{number % KEYS}", number)


DYING = """
import os, sys
from datetime import datetime, timedelta, timezone
from pymongo import MongoClient
from postroom import Message, Outbox
from postroom.outbox.reconciler import message_id
database = MongoClient(sys.argv[1]).get_default_database()
for number in range(int(sys.argv[2])):
    written = datetime.now(timezone.utc) - timedelta(hours=1)
    database["pages"].insert_one({"_id": f"page:{number}", "written_at": written})
    if number == int(sys.argv[2]) - 1:
        os.kill(os.getpid(), 9)
    Outbox(without_transactions=True).put(database, Message("page.saved", key="page", id=message_id(f"page:{number}")))
"""


@pytest.mark.parametrize("kind", ["mongo", "mongo_standalone"])
@pytest.mark.requirement("E4")
async def test_a_service_that_dies_between_its_two_writes_is_made_good_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(kind, request, tmp_path)
    plain = url.removesuffix("?postroom_transactions=off")
    async with open_store(url) as store, AsyncMongoClient[dict[str, Any]](plain) as client:
        await store.schema.migrate()
        dying = [sys.executable, "-c", DYING, plain, "4"]
        assert (await asyncio.to_thread(subprocess.run, dying, check=False)).returncode == -9
        assert len(await store.ops.find(Query())) == 3

        async def pages(before: datetime) -> AsyncIterator[tuple[str, Message]]:
            async for page in client.get_default_database()["pages"].find({"written_at": {"$lt": before}}):
                yield page["_id"], Message("page.saved", key="page")

        put = await asyncio.gather(*(Reconciler(store, pages).once() for _ in range(4)))
        assert sum(put) == 1
        assert len(await store.ops.find(Query())) == 4
