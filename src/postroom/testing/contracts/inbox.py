"""What a database must do for an inbox.

An implementation brings a *desk*: the inbox's store, and how a handler would write an effect with what it is given.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias
from uuid import uuid4

import pytest

from postroom.contracts.inbox import InboxStore
from postroom.contracts.store import Store
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import StoreError
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.testing.contracts._case import a_message

BILLING, SHOP = "billing", "shop"


End: TypeAlias = Literal["commit", "rollback", "close"]
ENDS: tuple[End, ...] = ("commit", "rollback", "close")


class Desk(Protocol):
    """A database with the tables, seen from the test."""

    opened: Store
    """The database, open."""
    store: InboxStore
    """Its inbox."""

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


class InboxCase:
    """The base of both suites: an async transaction and a blocking one, each as a handler has it."""

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


class TransactionsContract(InboxCase):
    """What a handler's transaction promises: a message is new once, whatever happens to its handler."""

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

        # One may be told to try again, as long as nobody waits forever and every message is new once.
        answers = await asyncio.gather(*(remember(ids[:: (-1) ** turn]) for turn in range(4)), return_exceptions=True)
        counted = [event for answer in answers if isinstance(answer, set) for event in answer]
        assert sorted(counted) == sorted(ids)

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

    async def test_blocking_ones_run_side_by_side_with_others(self, desk: Desk) -> None:
        """Many threads, many messages: each is new once, and nobody waits forever."""
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
        await desk.opened.close()
        await desk.opened.close()


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
