"""What a database must do for an inbox.

An implementation brings a *desk*: the inbox's store, and how a handler would write an effect with what it is given.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

import pytest

from postroom.clock import utcnow
from postroom.inbox_store import InboxStore, ParkedQuery
from postroom.message import Message
from postroom.outbox import Outbox
from postroom.testing.contracts._case import a_message
from postroom.transport import Delivery

BILLING = "billing"


class Desk(Protocol):
    """A database with the tables, seen from the test."""

    store: InboxStore

    async def write(self, handle: Any, effect: str) -> None:
        """What an async handler does: write an effect with the handle."""

    def write_blocking(self, handle: Any, effect: str) -> None:
        """What a sync handler does."""

    async def effects(self) -> Sequence[str]:
        """What is committed."""

    async def put(self) -> Sequence[Message]:
        """The messages in the outbox."""


class _Oops(Exception):
    pass


def a_delivery(**fields: Any) -> Delivery:
    return Delivery(a_message(**fields), "shop", "orders")


class InboxContract:
    """Subclass it, provide the fixture `desk`, run pytest."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def handle(self, desk: Desk, id_: UUID, *, consumer: str = BILLING, fails: bool = False) -> bool:
        """As an async handler's transaction does it; was it new?"""
        async with desk.store.transaction() as tx:
            new = await tx.remember(consumer, [id_])
            if new:
                await desk.write(tx.handle, str(id_))
            if fails:
                raise _Oops
        return bool(new)

    async def handle_blocking(self, desk: Desk, id_: UUID, *, consumer: str = BILLING, fails: bool = False) -> bool:
        """The same for a sync handler, in a thread."""

        def handle() -> bool:
            with desk.store.blocking() as tx:
                new = tx.remember(consumer, [id_])
                if new:
                    desk.write_blocking(tx.handle, str(id_))
                if fails:
                    raise _Oops
            return bool(new)

        return await asyncio.to_thread(handle)

    @pytest.mark.parametrize("how", ["handle", "handle_blocking"])
    async def test_a_message_is_new_once(self, desk: Desk, how: str) -> None:
        id_ = uuid4()
        assert [await getattr(self, how)(desk, id_) for _ in range(3)] == [True, False, False]
        assert list(await desk.effects()) == [str(id_)]

    @pytest.mark.parametrize("how", ["handle", "handle_blocking"])
    async def test_after_an_error_nothing_is_there_and_it_is_new_again(self, desk: Desk, how: str) -> None:
        id_ = uuid4()
        with pytest.raises(_Oops):
            await getattr(self, how)(desk, id_, fails=True)
        assert list(await desk.effects()) == []
        assert await getattr(self, how)(desk, id_)
        assert list(await desk.effects()) == [str(id_)]

    async def test_every_consumer_has_its_own_memory(self, desk: Desk) -> None:
        id_ = uuid4()
        assert await self.handle(desk, id_, consumer="billing")
        assert await self.handle(desk, id_, consumer="mailing")

    async def test_of_five_at_once_in_both_ways_one_is_new(self, desk: Desk) -> None:
        id_ = uuid4()
        hows = [self.handle, self.handle_blocking, self.handle, self.handle_blocking, self.handle]
        answers = await asyncio.gather(*(how(desk, id_) for how in hows))
        assert sorted(answers) == [False] * 4 + [True]
        assert list(await desk.effects()) == [str(id_)]

    @pytest.mark.parametrize("fails", [False, True])
    async def test_a_second_one_waits_for_the_first_and_takes_over_if_that_fails(self, desk: Desk, fails: bool) -> None:
        id_, inside, go = uuid4(), asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with desk.store.transaction() as tx:
                await tx.remember(BILLING, [id_])
                inside.set()
                await go.wait()
                if fails:
                    raise _Oops

        one = asyncio.create_task(first())
        await inside.wait()
        two = asyncio.create_task(self.handle(desk, id_))
        await asyncio.sleep(0.3)
        waited = not two.done()
        go.set()
        await asyncio.gather(one, return_exceptions=True)
        assert waited, "the second did not wait for the first"
        assert await two is fails

    async def test_of_many_those_that_are_known_are_told_apart(self, desk: Desk) -> None:
        known, new = {uuid4() for _ in range(3)}, {uuid4() for _ in range(500)}
        for id_ in known:
            await self.handle(desk, id_)
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, known | new) == new
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, known | new) == set()

    async def test_two_batches_with_the_same_messages_at_once_share_them(self, desk: Desk) -> None:
        ids = [uuid4() for _ in range(50)]

        async def remember(order: Sequence[UUID]) -> set[UUID]:
            async with desk.store.transaction() as tx:
                new = await tx.remember(BILLING, order)
                await asyncio.sleep(0.01)
                return new

        # One may be told to try again, as long as nobody waits for ever and every message is new once.
        answers = await asyncio.gather(*(remember(ids[:: (-1) ** turn]) for turn in range(4)), return_exceptions=True)
        counted = [id_ for answer in answers if isinstance(answer, set) for id_ in answer]
        assert sorted(counted) == sorted(ids)

    async def test_failures_are_counted_apart_from_the_handlers_transaction(self, desk: Desk) -> None:
        id_ = uuid4()
        assert [await desk.store.failed(BILLING, id_, "OOPS", "no luck") for _ in range(2)] == [1, 2]
        assert await desk.store.counts() == {BILLING: {"failing": 1}}
        assert await self.handle(desk, id_)
        assert await desk.store.counts() == {BILLING: {"handled": 1}}
        assert await desk.store.failed(BILLING, id_, "OOPS", "too late") == 0

    @pytest.mark.parametrize("error", ["a zero \x00 in it", "half a pair \ud800", "long " * 500, "𝄞 ☃ ключ", ""])
    async def test_an_error_of_any_text_is_counted_and_parked(self, desk: Desk, error: str) -> None:
        delivery = a_delivery()
        assert await desk.store.failed(BILLING, delivery.message.id, "OOPS", error) == 1
        await desk.store.bury(BILLING, delivery, "OOPS", error)
        (parked,) = await desk.store.parked(ParkedQuery())
        assert parked.error[:4] == error[:4]
        assert len(parked.error) <= len(error)

    async def test_what_is_parked_has_its_bytes_and_is_known(self, desk: Desk) -> None:
        delivery = a_delivery(
            key="ключ", body=bytes(range(256)), content_type="image/png", headers={"x-tenant": "acme"}
        )
        await desk.store.failed(BILLING, delivery.message.id, "OOPS", "no luck")
        for _ in range(2):
            await desk.store.bury(BILLING, delivery, "MAX_ATTEMPTS", "no luck, six times")
        (parked,) = await desk.store.parked(ParkedQuery())
        assert parked.message.replace(time=delivery.message.time) == delivery.message
        assert (parked.consumer, parked.source, parked.topic) == (BILLING, "shop", "orders")
        assert (parked.attempts, parked.code, parked.error) == (1, "MAX_ATTEMPTS", "no luck, six times")
        assert abs(parked.dead_at - utcnow()) < timedelta(minutes=1)
        assert not await self.handle(desk, delivery.message.id)
        assert await desk.store.counts() == {BILLING: {"dead": 1}}

    async def test_what_is_handled_is_not_parked_any_more(self, desk: Desk) -> None:
        delivery = a_delivery()
        await self.handle(desk, delivery.message.id)
        await desk.store.bury(BILLING, delivery, "LATE", "another was quicker")
        assert list(await desk.store.parked(ParkedQuery())) == []

    async def test_what_is_requeued_is_new_again_with_no_attempts_made(self, desk: Desk) -> None:
        delivery = a_delivery(key="a")
        id_ = delivery.message.id
        for _ in range(3):
            await desk.store.failed(BILLING, id_, "OOPS", "no luck")
        await desk.store.bury(BILLING, delivery, "OOPS", "no luck")
        assert await desk.store.requeue(ParkedQuery(consumer="mailing")) == 0
        assert await desk.store.requeue(ParkedQuery(consumer=BILLING, ids=[id_])) == 1
        assert await desk.store.requeue(ParkedQuery(ids=[id_])) == 0, "it is requeued already"
        assert [each.message.id for each in await desk.store.parked(ParkedQuery(requeued=True))] == [id_]
        assert await desk.store.failed(BILLING, id_, "OOPS", "again") == 1
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, [id_]) == {id_}
            await tx.unpark(BILLING, [id_])
        assert list(await desk.store.parked(ParkedQuery())) == []

    async def test_parked_ones_are_found_by_what_is_known_of_them(self, desk: Desk) -> None:
        one, two = a_delivery(type="order.paid", key="a"), a_delivery(type="order.sent", key="b")
        await desk.store.bury(BILLING, one, "OOPS", "")
        await desk.store.bury("mailing", two, "CORRUPT", "")
        queries = {
            "consumer": ParkedQuery(consumer="mailing"),
            "type": ParkedQuery(type="order.sent"),
            "key": ParkedQuery(key="b"),
            "code": ParkedQuery(code="CORRUPT"),
            "ids": ParkedQuery(ids=[two.message.id]),
            "not requeued, from two": ParkedQuery(consumer="mailing", requeued=False),
        }
        for what, query in queries.items():
            assert [each.message.id for each in await desk.store.parked(query)] == [two.message.id], what
        assert len(await desk.store.parked(ParkedQuery(limit=1))) == 1
        assert list(await desk.store.parked(ParkedQuery(requeued=True))) == []

    async def test_what_was_handled_long_ago_is_forgotten_and_what_is_parked_is_not(self, desk: Desk) -> None:
        ids = [uuid4() for _ in range(5)]
        for id_ in ids:
            await self.handle(desk, id_)
        await desk.store.bury(BILLING, a_delivery(), "OOPS", "")
        assert await desk.store.purge(utcnow() - timedelta(hours=1)) == 0
        assert await desk.store.purge(utcnow() + timedelta(hours=1), limit=3) == 3
        assert await desk.store.purge(utcnow() + timedelta(hours=1)) == 2
        assert await desk.store.counts() == {BILLING: {"dead": 1}}

    async def test_a_message_put_while_handling_commits_with_it(self, desk: Desk) -> None:
        further = a_message(key="b")

        async def handle(*, fails: bool) -> None:
            async with desk.store.transaction() as tx:
                await tx.remember(BILLING, [uuid4()])
                await _put(tx.handle, further)
                if fails:
                    raise _Oops

        with pytest.raises(_Oops):
            await handle(fails=True)
        assert list(await desk.put()) == []
        await handle(fails=False)
        assert [each.id for each in await desk.put()] == [further.id]

    async def test_a_whole_transaction_says_so(self, desk: Desk) -> None:
        async with desk.store.transaction() as tx:
            await tx.remember(BILLING, [uuid4()])
            assert tx.is_whole()
            assert not tx.is_away()

    async def test_blocking_ones_run_side_by_side_with_others(self, desk: Desk) -> None:
        """Many threads, many messages: each is new once, and nobody waits for ever."""
        ids, new, lock = [uuid4() for _ in range(20)], list[UUID](), threading.Lock()

        def handle_all(order: Sequence[UUID]) -> None:
            for id_ in order:
                with desk.store.blocking() as tx:
                    taken = tx.remember(BILLING, [id_])
                with lock:
                    new.extend(taken)

        await asyncio.gather(*(asyncio.to_thread(handle_all, ids[:: (-1) ** turn]) for turn in range(4)))
        assert sorted(new) == sorted(ids)

    async def test_closing_twice_is_fine(self, desk: Desk) -> None:
        await desk.store.close()
        await desk.store.close()


async def _put(handle: Any, message: Message) -> None:
    """With whatever the handler got: some handles are awaited, some are not."""
    outbox: Any = Outbox()
    written = outbox.put(handle, message)
    if isinstance(written, Awaitable):
        await written
