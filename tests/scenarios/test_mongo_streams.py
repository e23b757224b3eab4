"""MongoDB without a broker: streams that functions of this process handle, and a watch that the server breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from tests.servers.mongod import Mongod

from postroom import Message, Outbox, Relay, Route, open_store
from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.errors import StoreUnavailable
from postroom.relay import wakeup
from postroom.retry import RetryPolicy
from postroom.testing.journal import Delivery, Name, Run, check
from postroom.transports.local import LocalPublisher

pytestmark = pytest.mark.timeout(120)
STREAMS = ("wiki", "media", "search")
HISTORY_LOST, UNAUTHORIZED = 286, 13
SOON = RetryPolicy.parse("0.02")


@pytest.mark.requirement("E1")
async def test_three_streams_are_handled_by_functions_in_the_order_of_each_page(mongo_database: str) -> None:
    """A page is saved with what follows from it in one transaction; each stream has a handler, and one of them stumbles."""
    journal: list[tuple[str, Name]] = []

    def handler(stream: str) -> Callable[[Message], Awaitable[None]]:
        async def handle(message: Message) -> None:
            await asyncio.sleep(random.uniform(0, 0.002))  # so that different pages overtake each other
            if stream == "media" and message.data % 7 == 0 and ("stumbled", _name(message)) not in journal:
                journal.append(("stumbled", _name(message)))
                raise ConnectionError
            journal.append((stream, _name(message)))

        return handle

    put: dict[Name, str] = {}
    async with open_store(mongo_database) as store, AsyncMongoClient[dict[str, Any]](mongo_database) as client:
        await store.schema.migrate()
        database = client.get_default_database()
        await database.create_collection("pages")
        for number in range(60):
            page = f"page-{number % 4}"
            streams = STREAMS if number % 2 else STREAMS[:1]
            messages = [Message(f"{each}.changed", key=page, data=3 * number + at) for at, each in enumerate(streams)]
            async with client.start_session() as session, await session.start_transaction():
                await database["pages"].update_one(
                    {"_id": page}, {"$set": {"at": number}}, upsert=True, session=session
                )
                await Outbox().put_many(session, messages)
            put |= {_name(message): message.type.partition(".")[0] for message in messages}
        routes = [
            Route(to=LocalPublisher(handler(stream)), pattern=f"{stream}.*", name=stream, retry=SOON)
            for stream in STREAMS
        ]
        await Relay(store, routes).drain()
        found = {_name(record.message): record.status for record in await store.ops.find(Query())}
    handled = [(stream, name) for stream, name in journal if stream != "stumbled"]
    assert dict.fromkeys(found.values()) == {"published": None}
    assert {name: stream for stream, name in handled} == put, "each by the handler of its stream"
    assert len(journal) > len(handled), "it stumbled"
    check(Run(put=[*put], journal=[Delivery(name, stream) for stream, name in handled], found=found))


def _name(message: Message) -> Name:
    return Name(str(message.key), message.data)


class Watched:
    """What became of a store's watches: `True` when it told something, `False` when it broke."""

    def __init__(self, store: Store) -> None:
        self.told: list[bool] = []
        self._watch = store.outbox.watch

    async def __call__(self, woken: Callable[[], None]) -> None:
        def tell() -> None:
            self.told.append(True)
            woken()

        try:
            await self._watch(tell)
        except StoreUnavailable:
            self.told.append(False)
            raise

    async def until(self, what: bool, after: int = 0) -> None:
        async with asyncio.timeout(30):
            while what not in self.told[after:]:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [HISTORY_LOST, UNAUTHORIZED])
async def test_without_its_watch_a_relay_sweeps_and_tries_it_again_later(
    failing_mongo_server: Mongod, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The server has forgotten where the stream stood, or this user may not watch."""
    monkeypatch.setattr(wakeup, "WATCH_AGAIN_SECONDS", 0.3)
    url = failing_mongo_server.url.replace("/?", "/shop?")
    came: list[int] = []

    async def deliver(message: Message) -> None:
        came.append(message.data)

    async def put_and_see(*numbers: int) -> None:
        for number in numbers:
            await store.outbox.put([Message("order.paid", key="a", data=number)])
        async with asyncio.timeout(30):
            while numbers[-1] not in came:
                await asyncio.sleep(0.01)

    async with open_store(url) as store, AsyncMongoClient[dict[str, Any]](url) as client:
        await store.schema.migrate()
        watched = Watched(store)
        monkeypatch.setattr(store.outbox, "watch", watched)
        relay = Relay(store, [Route(to=LocalPublisher(deliver))], config=RelayConfig(poll=timedelta(milliseconds=100)))
        running = asyncio.create_task(relay.run())
        await watched.until(True)
        await put_and_see(1, 2)
        broken_at = len(watched.told)
        data = {"failCommands": ["aggregate", "getMore"], "errorCode": code, "namespace": "shop.$cmd.aggregate"}
        await client.admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data})
        await watched.until(False, broken_at)
        await put_and_see(3, 4, 5)
        assert True not in watched.told[watched.told.index(False) :], "nothing but the sweep found them"
        await client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        await watched.until(True, len(watched.told))
        await put_and_see(6)
        relay.stop()
        await running
    assert came == [1, 2, 3, 4, 5, 6]
