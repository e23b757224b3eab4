"""What a database must do for an inbox.

An implementation brings a *desk*: the inbox's store, and how a handler would write an effect with what it is given.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias
from uuid import uuid4

import pytest

from postroom.clock import utcnow
from postroom.contracts.inbox import UNFINISHED, DeadQuery, InboxStore, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import StoreError
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.testing.contracts._case import HOSTILE_TEXTS, a_message
from postroom.text import is_storable

BILLING, SHOP = "billing", "shop"


End: TypeAlias = Literal["commit", "rollback", "close"]
ENDS: tuple[End, ...] = ("commit", "rollback", "close")


class Desk(Protocol):
    """A database with the tables, seen from the test."""

    store: InboxStore

    async def write(self, handle: Any, effect: str) -> None:
        """What an async handler does: write an effect with the handle."""

    def write_blocking(self, handle: Any, effect: str) -> None:
        """What a sync handler does."""

    async def end(self, handle: Any, how: End) -> None:
        """What an async handler must not do: commit, roll back or close the handle by itself."""

    def end_blocking(self, handle: Any, how: End) -> None:
        """The same in a sync handler."""

    async def effects(self) -> Sequence[str]:
        """What is committed."""

    async def put(self) -> Sequence[Message]:
        """The messages in the outbox."""


class _Oops(Exception):
    pass


class _Carried(Exception):
    """What a transaction raised that is no Exception: neither pytest nor a thread's future carries that as it is."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def an_event(source: str = SHOP) -> Identity:
    """Nobody has heard of it yet."""
    return Identity(source, uuid4())


def a_delivery(source: str = SHOP, **fields: Any) -> Delivery:
    return Delivery(a_message(**fields), source, "orders")


class InboxContract:
    """Subclass it, provide the fixture `desk`, run pytest."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def handle(
        self, desk: Desk, event: Identity, *, consumer: str = BILLING, fails: bool | BaseException = False
    ) -> bool:
        """As an async handler's transaction does it; was it new?"""
        async with desk.store.transaction() as tx:
            new = await tx.remember(consumer, [event])
            if new:
                await desk.write(tx.handle, str(event))
            if fails:
                raise fails if isinstance(fails, BaseException) else _Oops
        return bool(new)

    async def handle_blocking(
        self, desk: Desk, event: Identity, *, consumer: str = BILLING, fails: bool | BaseException = False
    ) -> bool:
        """The same for a sync handler, in a thread."""

        def handle() -> bool | BaseException:
            try:
                return transact()
            except BaseException as exc:  # noqa: BLE001 - a future of a thread does not carry every one of them
                return exc

        def transact() -> bool:
            with desk.store.blocking() as tx:
                new = tx.remember(consumer, [event])
                if new:
                    desk.write_blocking(tx.handle, str(event))
                if fails:
                    raise fails if isinstance(fails, BaseException) else _Oops
            return bool(new)

        answer = await asyncio.to_thread(handle)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @pytest.mark.parametrize("how", ["handle", "handle_blocking"])
    async def test_a_message_is_new_once(self, desk: Desk, how: str) -> None:
        event = an_event()
        assert [await getattr(self, how)(desk, event) for _ in range(3)] == [True, False, False]
        assert list(await desk.effects()) == [str(event)]

    @pytest.mark.parametrize("how", ["handle", "handle_blocking"])
    async def test_after_an_error_nothing_is_there_and_it_is_new_again(self, desk: Desk, how: str) -> None:
        event = an_event()
        with pytest.raises(_Oops):
            await getattr(self, how)(desk, event, fails=True)
        assert list(await desk.effects()) == []
        assert await getattr(self, how)(desk, event)
        assert list(await desk.effects()) == [str(event)]

    @pytest.mark.parametrize("how", ["handle", "handle_blocking"])
    async def test_what_was_cancelled_from_inside_is_rolled_back_and_comes_out_as_it_is(
        self, desk: Desk, how: str
    ) -> None:
        """A handler awaited a task that somebody cancelled. No stranger's error may pass for an end without one."""
        for error in (asyncio.CancelledError(), SystemExit(1)):
            event = an_event()
            with pytest.raises(_Carried) as came:
                await _carrying(getattr(self, how), desk, event, error)
            assert came.value.error is error
            assert list(await desk.effects()) == []
            assert await desk.store.counts() == {}, "nothing is on record of it"
        # No turn, no connection and no lock is kept by it.
        for event in (an_event() for _ in range(20)):
            with pytest.raises(_Carried):
                await _carrying(getattr(self, how), desk, event, asyncio.CancelledError())
        async with asyncio.timeout(20):
            assert await getattr(self, how)(desk, event)

    async def test_a_handler_that_is_told_to_end_leaves_nothing_behind(self, desk: Desk) -> None:
        event, inside = an_event(), asyncio.Event()

        async def first() -> None:
            async with desk.store.transaction() as tx:
                await tx.remember(BILLING, [event])
                await desk.write(tx.handle, str(event))
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(first())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(await desk.effects()) == []
        async with asyncio.timeout(20):
            assert await self.handle(desk, event)

    async def test_every_consumer_has_its_own_memory(self, desk: Desk) -> None:
        event = an_event()
        assert await self.handle(desk, event, consumer="billing")
        assert await self.handle(desk, event, consumer="mailing")

    @pytest.mark.parametrize("how", ["handle", "handle_blocking"])
    @pytest.mark.parametrize("other", ["/depot", "SHOP", "shop ", "shöp", "x" * 300])
    async def test_the_same_id_of_another_source_is_another_event(self, desk: Desk, how: str, other: str) -> None:
        """CloudEvents: an id is unique within its source. Case, an accent or a space at the end make another source."""
        event = an_event()
        for each in (event, Identity(other, event.id), Identity(f"{other}!", event.id)):
            assert [await getattr(self, how)(desk, each) for _ in range(2)] == [True, False]
        assert len(await desk.effects()) == 3

    async def test_one_id_of_two_sources_is_told_apart_in_one_batch(self, desk: Desk) -> None:
        here = an_event()
        there = Identity("/depot", here.id)
        assert await self.handle(desk, here)
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, [here, there]) == {there}

    async def test_two_sources_fail_and_die_apart(self, desk: Desk) -> None:
        here = a_delivery()
        there = a_delivery("/depot", id=here.message.id)
        assert await desk.store.failed(BILLING, here.identity, "OOPS", "no luck") == 1
        assert await desk.store.failed(BILLING, there.identity, "OOPS", "no luck") == 1
        await desk.store.bury(BILLING, there, "OOPS", "no luck")
        assert [each.source for each in await desk.store.dead(DeadQuery())] == ["/depot"]
        assert await self.handle(desk, here.identity), "the other one is dead, not this one"
        assert not await self.handle(desk, there.identity)
        assert await desk.store.counts() == {BILLING: {"handled": 1, "dead": 1}}
        async with desk.store.transaction() as tx:
            await tx.unbury(BILLING, [here.identity])
        assert len(await desk.store.dead(DeadQuery())) == 1
        assert await desk.store.requeue(DeadQuery(ids=[there.message.id])) == 1
        assert await self.handle(desk, there.identity), "requeued"
        assert not await self.handle(desk, here.identity), "handled before"

    async def test_of_five_at_once_in_both_ways_one_is_new(self, desk: Desk) -> None:
        event = an_event()
        hows = [self.handle, self.handle_blocking, self.handle, self.handle_blocking, self.handle]
        answers = await asyncio.gather(*(how(desk, event) for how in hows))
        assert sorted(answers) == [False] * 4 + [True]
        assert list(await desk.effects()) == [str(event)]

    @pytest.mark.parametrize("fails", [False, True])
    async def test_a_second_one_waits_for_the_first_and_takes_over_if_that_fails(self, desk: Desk, fails: bool) -> None:
        event, inside, go = an_event(), asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with desk.store.transaction() as tx:
                await tx.remember(BILLING, [event])
                inside.set()
                await go.wait()
                if fails:
                    raise _Oops

        one = asyncio.create_task(first())
        await inside.wait()
        two = asyncio.create_task(self.handle(desk, event))
        await asyncio.sleep(0.3)
        waited = not two.done()
        go.set()
        await asyncio.gather(one, return_exceptions=True)
        assert waited, "the second did not wait for the first"
        assert await two is fails

    async def test_of_many_those_that_are_known_are_told_apart(self, desk: Desk) -> None:
        known, new = {an_event() for _ in range(3)}, {an_event() for _ in range(500)}
        for event in known:
            await self.handle(desk, event)
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, known | new) == new
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, known | new) == set()

    async def test_two_batches_with_the_same_messages_at_once_share_them(self, desk: Desk) -> None:
        ids = [an_event() for _ in range(50)]

        async def remember(order: Sequence[Identity]) -> set[Identity]:
            async with desk.store.transaction() as tx:
                new = await tx.remember(BILLING, order)
                await asyncio.sleep(0.01)
                return new

        # One may be told to try again, as long as nobody waits for ever and every message is new once.
        answers = await asyncio.gather(*(remember(ids[:: (-1) ** turn]) for turn in range(4)), return_exceptions=True)
        counted = [event for answer in answers if isinstance(answer, set) for event in answer]
        assert sorted(counted) == sorted(ids)

    async def test_failures_are_counted_apart_from_the_handlers_transaction(self, desk: Desk) -> None:
        event = an_event()
        assert [await desk.store.failed(BILLING, event, "OOPS", "no luck") for _ in range(2)] == [1, 2]
        assert await desk.store.counts() == {BILLING: {"failing": 1}}
        assert await self.handle(desk, event)
        assert await desk.store.counts() == {BILLING: {"handled": 1}}
        assert await desk.store.failed(BILLING, event, "OOPS", "too late") == 0

    @pytest.mark.parametrize("text", HOSTILE_TEXTS)
    async def test_an_error_of_any_text_is_counted_and_dead(self, desk: Desk, text: tuple[str, str]) -> None:
        said, kept = text
        delivery = a_delivery()
        assert await desk.store.failed(BILLING, delivery.identity, said[:20], said) == 1
        await desk.store.bury(BILLING, delivery, f"OOPS {said[:20]}", said)
        (dead,) = await desk.store.dead(DeadQuery())
        assert dead.error == kept
        assert dead.code.startswith("OOPS")

    @pytest.mark.parametrize("name", ["a\x00b", "half \ud800", "\x1b[2J", "x" * 100_000, "\ud800" * 100_000])
    async def test_a_delivery_of_any_names_is_dead_with_its_bytes(self, desk: Desk, name: str) -> None:
        message = a_message(
            type=name, key=name, body=b"\x00\xff", content_type=name, headers={name: name}, correlation_id=name
        )
        await desk.store.bury(BILLING, Delivery(message, name, name), "NO_EVENT", name)
        (dead,) = await desk.store.dead(DeadQuery(consumer=BILLING))
        assert (dead.message.id, dead.message.body) == (message.id, b"\x00\xff")
        for kept in (dead.message.type, dead.message.key, dead.topic, dead.source):
            assert kept
            assert is_storable(kept)
        assert await desk.store.requeue(DeadQuery(ids=[message.id])) == 1
        assert len(await desk.store.dead(DeadQuery(requeued=True))) == 1

    async def test_a_try_that_was_counted_before_it_began_is_not_counted_again(self, desk: Desk) -> None:
        store, event = desk.store, an_event()
        tries = [(UNFINISHED, 1), (UNFINISHED, 2), ("OOPS", 2), ("OOPS", 3), (UNFINISHED, 4), ("OOPS", 4)]
        for code, attempts in tries:
            assert await store.failed(BILLING, event, code, "no luck") == attempts
        assert await store.failed(BILLING, event, UNFINISHED, "") == 5
        assert await self.handle(desk, event)
        (known,) = await store.known(KnownQuery(ids=[event.id]))
        assert (known.outcome, known.attempts, known.code, known.error) == ("handled", 5, None, None)
        assert await store.failed(BILLING, event, UNFINISHED, "") == 0, "it is handled, and stays so"

    async def test_what_is_on_record_of_a_message_is_found(self, desk: Desk) -> None:
        store, events = desk.store, [an_event(), an_event(), an_event("/depot"), an_event()]
        ids = [event.id for event in events]
        await self.handle(desk, events[0])
        await store.failed(BILLING, events[1], "OOPS", "no luck")
        await store.bury(BILLING, a_delivery("/depot", id=ids[2]), "LOST", "no hope")
        await store.failed("mailing", events[1], "LATE", "too late")
        assert list(await store.known(KnownQuery(ids=[ids[3]]))) == []
        found = await store.known(KnownQuery(consumer=BILLING))
        assert [(each.consumer, Identity(each.source, each.id)) for each in found] == [
            (BILLING, event) for event in events[:3]
        ]
        assert [(each.outcome, each.attempts, each.code, each.error) for each in found] == [
            ("handled", 1, None, None),
            ("failing", 1, "OOPS", "no luck"),
            ("dead", 0, "LOST", "no hope"),
        ]
        assert all(abs(each.at - utcnow()) < timedelta(minutes=1) for each in found)
        queries = {
            "outcome": KnownQuery(outcome="failing"),
            "ids": KnownQuery(ids=[ids[1], ids[3]]),
            "consumer and ids": KnownQuery(consumer=BILLING, ids=[ids[1]]),
            "source": KnownQuery(source="/depot"),
            "another source": KnownQuery(ids=[ids[1]], source="/depot"),
            "the newest": KnownQuery(limit=1),
        }
        told_of = {what: [each.consumer for each in await store.known(query)] for what, query in queries.items()}
        assert told_of == {
            "outcome": [BILLING, "mailing"],
            "ids": [BILLING, "mailing"],
            "consumer and ids": [BILLING],
            "source": [BILLING],
            "another source": [],
            "the newest": ["mailing"],
        }

    async def test_what_is_dead_has_its_bytes_and_is_known(self, desk: Desk) -> None:
        delivery = a_delivery(
            key="ключ", body=bytes(range(256)), content_type="image/png", headers={"x-tenant": "acme"}
        )
        await desk.store.failed(BILLING, delivery.identity, "OOPS", "no luck")
        for _ in range(2):
            await desk.store.bury(BILLING, delivery, "MAX_ATTEMPTS", "no luck, six times")
        (dead,) = await desk.store.dead(DeadQuery())
        assert dead.message.replace(time=delivery.message.time) == delivery.message
        assert (dead.consumer, dead.source, dead.topic) == (BILLING, "shop", "orders")
        assert (dead.attempts, dead.code, dead.error) == (1, "MAX_ATTEMPTS", "no luck, six times")
        assert abs(dead.dead_at - utcnow()) < timedelta(minutes=1)
        assert not await self.handle(desk, delivery.identity)
        assert await desk.store.counts() == {BILLING: {"dead": 1}}

    async def test_what_is_handled_is_not_dead_any_more(self, desk: Desk) -> None:
        delivery = a_delivery()
        await self.handle(desk, delivery.identity)
        await desk.store.bury(BILLING, delivery, "LATE", "another was quicker")
        assert list(await desk.store.dead(DeadQuery())) == []

    async def test_what_is_requeued_is_new_again_with_no_attempts_made(self, desk: Desk) -> None:
        delivery = a_delivery(key="a")
        event, id_ = delivery.identity, delivery.message.id
        for _ in range(3):
            await desk.store.failed(BILLING, event, "OOPS", "no luck")
        await desk.store.bury(BILLING, delivery, "OOPS", "no luck")
        assert await desk.store.requeue(DeadQuery(consumer="mailing")) == 0
        assert await desk.store.requeue(DeadQuery(consumer=BILLING, ids=[id_])) == 1
        assert await desk.store.requeue(DeadQuery(ids=[id_])) == 0, "it is requeued already"
        assert [each.message.id for each in await desk.store.dead(DeadQuery(requeued=True))] == [id_]
        assert await desk.store.failed(BILLING, event, "OOPS", "again") == 1
        async with desk.store.transaction() as tx:
            assert await tx.remember(BILLING, [event]) == {event}
            await tx.unbury(BILLING, [event])
        assert list(await desk.store.dead(DeadQuery())) == []

    async def test_dead_ones_are_found_by_what_is_known_of_them(self, desk: Desk) -> None:
        one, two = a_delivery(type="order.paid", key="a"), a_delivery(type="order.sent", key="b")
        await desk.store.bury(BILLING, one, "OOPS", "")
        await desk.store.bury("mailing", two, "CORRUPT", "")
        queries = {
            "consumer": DeadQuery(consumer="mailing"),
            "type": DeadQuery(type="order.sent"),
            "key": DeadQuery(key="b"),
            "code": DeadQuery(code="CORRUPT"),
            "ids": DeadQuery(ids=[two.message.id]),
            "not requeued, from two": DeadQuery(consumer="mailing", requeued=False),
        }
        for what, query in queries.items():
            assert [each.message.id for each in await desk.store.dead(query)] == [two.message.id], what
        assert len(await desk.store.dead(DeadQuery(limit=1))) == 1
        assert list(await desk.store.dead(DeadQuery(requeued=True))) == []

    async def test_what_was_handled_long_ago_is_forgotten_and_what_is_dead_is_not(self, desk: Desk) -> None:
        ids = [an_event() for _ in range(5)]
        for event in ids:
            await self.handle(desk, event)
        await desk.store.bury(BILLING, a_delivery(), "OOPS", "")
        assert await desk.store.purge(BILLING, utcnow() - timedelta(hours=1)) == 0
        assert await desk.store.purge(BILLING, utcnow() + timedelta(hours=1), limit=3) == 3
        assert await desk.store.purge(BILLING, utcnow() + timedelta(hours=1)) == 2
        assert await desk.store.counts() == {BILLING: {"dead": 1}}

    async def test_what_one_consumer_forgets_another_still_knows(self, desk: Desk) -> None:
        event = an_event()
        for consumer in ("billing", "mailing"):
            await self.handle(desk, event, consumer=consumer)
        assert await desk.store.purge("billing", utcnow() + timedelta(hours=1)) == 1
        assert await self.handle(desk, event, consumer="billing"), "it was forgotten"
        assert not await self.handle(desk, event, consumer="mailing"), "another inbox's memory was erased"

    async def test_a_message_put_while_handling_commits_with_it(self, desk: Desk) -> None:
        further = a_message(key="b")

        async def handle(*, fails: bool) -> None:
            async with desk.store.transaction() as tx:
                await tx.remember(BILLING, [an_event()])
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
            await tx.remember(BILLING, [an_event()])
            assert tx.is_whole()
            assert not tx.is_ended()
            assert not tx.is_away()

    @pytest.mark.parametrize("end", ENDS)
    async def test_a_transaction_that_its_handler_ended_says_so_and_the_next_one_works(
        self, desk: Desk, end: End
    ) -> None:
        event, said = an_event(), list[bool]()

        async def handle() -> None:
            async with desk.store.transaction() as tx:
                await tx.remember(BILLING, [event])
                await desk.write(tx.handle, "a")
                await desk.end(tx.handle, end)
                said.extend((tx.is_whole(), tx.is_ended(), tx.is_away()))
                raise _Oops

        with pytest.raises(_Oops):
            await handle()
        assert said == [False, True, False]
        assert list(await desk.effects()) == (["a"] if end == "commit" else [])
        with _no_closed_handle():
            again = await self.handle(desk, event)
        assert again is (end != "commit"), "the row is committed with the effect, or not"

    @pytest.mark.parametrize("end", ENDS)
    async def test_a_transaction_that_its_sync_handler_ended_says_so_and_the_next_one_works(
        self, desk: Desk, end: End
    ) -> None:
        event, said = an_event(), list[bool]()

        def handle() -> None:
            with desk.store.blocking() as tx:
                tx.remember(BILLING, [event])
                desk.write_blocking(tx.handle, "a")
                desk.end_blocking(tx.handle, end)
                said.extend((tx.is_whole(), tx.is_ended(), tx.is_away()))
                raise _Oops

        with pytest.raises(_Oops):
            await asyncio.to_thread(handle)
        assert said == [False, True, False]
        assert list(await desk.effects()) == (["a"] if end == "commit" else [])
        with _no_closed_handle():
            again = await self.handle_blocking(desk, event)
        assert again is (end != "commit"), "the row is committed with the effect, or not"

    async def test_what_its_handler_committed_too_early_can_be_buried_all_the_same(self, desk: Desk) -> None:
        delivery = a_delivery()
        await self.handle(desk, delivery.identity)
        await desk.store.bury(BILLING, delivery, "BROKEN_TRANSACTION", "it committed by itself", committed=True)
        dead = await desk.store.dead(DeadQuery())
        assert [(each.message.id, each.code) for each in dead] == [(delivery.message.id, "BROKEN_TRANSACTION")]
        assert await desk.store.counts() == {BILLING: {"dead": 1}}
        assert not await self.handle(desk, delivery.identity), "it is not handled again before a person says so"

    async def test_blocking_ones_run_side_by_side_with_others(self, desk: Desk) -> None:
        """Many threads, many messages: each is new once, and nobody waits for ever."""
        ids, new, lock = [an_event() for _ in range(20)], list[Identity](), threading.Lock()

        def handle_all(order: Sequence[Identity]) -> None:
            for event in order:
                with desk.store.blocking() as tx:
                    taken = tx.remember(BILLING, [event])
                with lock:
                    new.extend(taken)

        await asyncio.gather(*(asyncio.to_thread(handle_all, ids[:: (-1) ** turn]) for turn in range(4)))
        assert sorted(new) == sorted(ids)

    async def test_closing_twice_is_fine(self, desk: Desk) -> None:
        await desk.store.close()
        await desk.store.close()


async def _carrying(how: Callable[..., Awaitable[bool]], desk: Desk, event: Identity, error: BaseException) -> None:
    try:
        await how(desk, event, fails=error)
    except BaseException as exc:  # noqa: BLE001 - it is what this is about
        raise _Carried(exc) from None


@contextmanager
def _no_closed_handle() -> Iterator[None]:
    """What a handler has closed must not be given to the next one."""
    try:
        yield
    except StoreError as exc:
        pytest.fail(f"a handle that was closed is used again: {exc}")


async def _put(handle: Any, message: Message) -> None:
    """With whatever the handler got: some handles are awaited, some are not."""
    outbox: Any = Outbox()
    written = outbox.put(handle, message)
    if isinstance(written, Awaitable):
        await written
