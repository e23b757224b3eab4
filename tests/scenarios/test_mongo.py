"""MongoDB is killed under load and started again, and services die between two writes: nothing is lost, order is kept."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError
from tests.scenarios.conftest import url_of
from tests.servers.mongod import Mongod

from postroom import Message, Outbox, Relay, Route, open_store
from postroom.reconciler import Reconciler
from postroom.store import Query
from postroom.testing.journal import Delivery, Name, Run, check
from postroom.transports.local import LocalPublisher

pytestmark = pytest.mark.anyio
KEYS = 5


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
        await store.migrate()
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
        records = await store.find(Query())
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


def _name(number: int) -> Name:
    return Name(f"k{number % KEYS}", number)


DYING = """
import os, sys
from datetime import datetime, timedelta, timezone
from pymongo import MongoClient
from postroom import Message, Outbox
from postroom.reconciler import message_id
database = MongoClient(sys.argv[1]).get_default_database()
for number in range(int(sys.argv[2])):
    written = datetime.now(timezone.utc) - timedelta(hours=1)
    database["pages"].insert_one({"_id": f"page:{number}", "written_at": written})
    if number == int(sys.argv[2]) - 1:
        os.kill(os.getpid(), 9)
    Outbox(without_transactions=True).put(database, Message("page.saved", key="page", id=message_id(f"page:{number}")))
"""


@pytest.mark.parametrize("kind", ["mongo", "mongo_standalone"])
async def test_a_service_that_dies_between_its_two_writes_is_made_good_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(kind, request, tmp_path)
    plain = url.removesuffix("?postroom_transactions=off")
    async with open_store(url) as store, AsyncMongoClient[dict[str, Any]](plain) as client:
        await store.migrate()
        dying = [sys.executable, "-c", DYING, plain, "4"]
        assert (await asyncio.to_thread(subprocess.run, dying, check=False)).returncode == -9
        assert len(await store.find(Query())) == 3

        async def pages(before: datetime) -> AsyncIterator[tuple[str, Message]]:
            async for page in client.get_default_database()["pages"].find({"written_at": {"$lt": before}}):
                yield page["_id"], Message("page.saved", key="page")

        put = await asyncio.gather(*(Reconciler(store, pages).once() for _ in range(4)))
        assert sum(put) == 1
        assert len(await store.find(Query())) == 4
