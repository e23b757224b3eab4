"""A database that says "not now": it is read-only for a while, as in a switch-over, or its disk is full.

Whose fault is it? Not the message's: nothing is counted, and nothing ends. It is StoreUnavailable, until it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from postroom.config.values import RelayConfig
from postroom.contracts.inbox import InboxStore
from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Published, Settlement
from postroom.contracts.store import Store
from postroom.contracts.transport import Delivery
from postroom.errors import StoreUnavailable
from postroom.inbox import Inbox, InboxWorker
from postroom.message import Message
from postroom.relay import Relay
from postroom.relay.routes import Route
from postroom.testing.contracts._case import LEASE, NOON, a_message, a_relay, put, seqs, statuses
from postroom.testing.contracts.inbox import an_event
from postroom.testing.waiting import until_async
from postroom.transports.memory import MemoryBroker, MemoryConsumer, MemoryPublisher

ReadOnly: TypeAlias = Callable[[], AbstractContextManager[None]]
"""`with read_only():` the database of the test takes no writes inside, from connections old and new."""
PATIENCE_SECONDS = 60


class OutageContract:
    """Subclass it, provide the fixtures `store`, `inbox` and `read_only`, all of one database; run pytest."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_a_store_that_is_read_only_is_away_and_comes_back(self, store: Store, read_only: ReadOnly) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        claims = await relay.claim()
        settlements = [Settlement(claim, {seq: Published()}, True) for claim in claims]
        with read_only():
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await store.outbox.put([a_message()])
                with pytest.raises(StoreUnavailable):
                    await store.outbox.settle(settlements, now=NOON)
                with pytest.raises(StoreUnavailable):
                    await store.lanes.join(RelayInfo(owner="relay-a", name="a"), now=NOON)
                with pytest.raises(StoreUnavailable):
                    await store.lanes.renew("relay-a", relay.lanes, lease=LEASE, now=NOON)
        assert await store.lanes.renew("relay-a", relay.lanes, lease=LEASE, now=NOON) == relay.lanes.keys()
        assert set((await store.outbox.settle(settlements, now=NOON)).values()) == {"settled"}
        assert await statuses(store, seq) == ["published"]
        (second,) = await put(store, "a")
        assert seqs(await relay.claim()) == [second]

    async def test_an_inbox_that_is_read_only_is_away_and_comes_back(self, store: Store, read_only: ReadOnly) -> None:
        inbox, event, delivery = store.inbox, an_event(), Delivery(a_message(), "shop", "orders")
        with read_only():
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    async with inbox.transaction() as tx:
                        await tx.remember("billing", [event])
                with pytest.raises(StoreUnavailable):
                    await asyncio.to_thread(_remember, inbox, event)
                with pytest.raises(StoreUnavailable):
                    await inbox.failed("billing", event, "OOPS", "no luck")
                with pytest.raises(StoreUnavailable):
                    await inbox.bury("billing", delivery, "OOPS", "no luck")
        assert await inbox.failed("billing", event, "OOPS", "no luck") == 1
        await inbox.bury("billing", delivery, "OOPS", "no luck")
        async with inbox.transaction() as tx:
            assert await tx.remember("billing", [event]) == {event}
        assert await asyncio.to_thread(_remember, inbox, an_event())

    async def test_a_relay_outlives_it(self, store: Store, read_only: ReadOnly) -> None:
        broker = MemoryBroker()
        relay = Relay(store, [Route(to=MemoryPublisher(broker, topic="orders"))], config=_brisk())
        running = asyncio.create_task(relay.run())
        try:
            await store.outbox.put([a_message(key="a", data=1)])
            await until_async(lambda: len(broker.topics["orders"]) == 1)
            with read_only():
                await asyncio.sleep(1.5)  # a few of its polls and beats
                assert not running.done()
            with suppress(StoreUnavailable):  # a connection on which the relay only read meanwhile
                await store.outbox.put([a_message(key="a", data=2)])
            await store.outbox.put([a_message(key="a", data=3)])
            await until_async(lambda: 3 in [message.data for message in broker.topics["orders"]])
        finally:
            relay.stop()
            await running
        assert {record.status for record in await store.ops.find(Query())} == {"published"}

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_a_consumer_outlives_it_and_no_try_is_counted(
        self, store: Store, read_only: ReadOnly, is_async: bool
    ) -> None:
        broker, handled = MemoryBroker(), list[object]()
        billing = Inbox("billing")

        async def charge(message: Message, _: Any) -> None:
            handled.append(message.data)

        def charge_blocking(message: Message, _: Any) -> None:
            handled.append(message.data)

        billing.on("order.paid")(charge if is_async else charge_blocking)
        reception = InboxWorker(billing, store, MemoryConsumer(broker, "orders", group="billing"))
        broker.topics["orders"].append(a_message(data=1))
        with read_only():
            running = asyncio.create_task(reception.run())
            await asyncio.sleep(1.5)
            assert not running.done()
        try:
            await until_async(lambda: reception.tally.done["handled"] == 1)
        finally:
            reception.stop()
            await running
        assert reception.tally.done == {"handled": 1}
        assert await store.inbox.counts() == {"billing": {"handled": 1}}


def _remember(inbox: InboxStore, event: Any) -> bool:
    with inbox.blocking() as tx:
        return bool(tx.remember("billing", [event]))


def _brisk() -> RelayConfig:
    return RelayConfig(lease=timedelta(seconds=10), poll=timedelta(seconds=0.1))
