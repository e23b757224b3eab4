"""Handling messages in one transaction with their rows."""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from postroom.causation import causing
from postroom.errors import StoreUnavailable
from postroom.failpoints import reach
from postroom.inbox.faults import BROKEN_TRANSACTION, CORRUPT_PAYLOAD, NO_EVENT, NO_HANDLER, Fault, fault_of
from postroom.inbox.inbox import Handler, Inbox
from postroom.inbox.payloads import CorruptPayload
from postroom.inbox_store import BlockingTransaction, InboxStore, Transaction
from postroom.message import Message
from postroom.retry import GiveUp
from postroom.tracing import processing
from postroom.transport import Delivery
from postroom.transports.threads import Threads

BUSY_AGAIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Done:
    """It is handled, now or before; or nobody wants it."""

    how: Literal["handled", "known", "skipped"]


@dataclass(frozen=True, slots=True)
class Again:
    """It failed, and is tried again after this time."""

    after: timedelta
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Parking:
    """It is given up, and was parked."""

    code: str
    error: str


Result: TypeAlias = Done | Again | Parking


class Broken(Exception):
    """The handler returned, but its transaction is not as it was begun."""


class Handling:
    """Handles deliveries of one inbox. Raises StoreUnavailable while the database is away: nothing was tried then."""

    def __init__(self, inbox: Inbox, store: InboxStore, threads: Threads, *, system: str) -> None:
        self._inbox, self._store, self._threads = inbox, store, threads
        self._system = system
        """What it comes from, as traces call it."""

    async def one(self, delivery: Delivery, *, unpark: bool = False) -> Result:
        """Handle one delivery, and say what is to become of it. A failure is on record when this returns."""
        if delivery.fault is not None:
            return await self._give_up(delivery, NO_EVENT, delivery.fault)
        handler = self._inbox.handler_for(delivery.message.type)
        if handler is None:
            if self._inbox.unhandled == "skip":
                return Done("skipped")
            return await self._give_up(delivery, NO_HANDLER, f"no handler takes the type {delivery.message.type!r}")
        try:
            known = not await self._within(handler, [delivery], unpark=unpark)
        except StoreUnavailable:
            raise
        except Busy:
            return Again(BUSY_AGAIN, "BUSY", "another consumer of this name handles it now")
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a handler raises is a result
            return await self._failed(delivery, exc)
        return Done("known" if known else "handled")

    async def many(self, handler: Handler, deliveries: Sequence[Delivery]) -> set[UUID] | None:
        """Handle these together, in one transaction; which were new. None: it did not work, and nothing of it is kept."""
        if not deliveries:
            return set()
        try:
            return await self._within(handler, deliveries)
        except StoreUnavailable:
            raise
        except (Exception, SystemExit):  # noqa: BLE001 - they are handled one by one, and then it is told what is wrong
            return None

    async def _within(self, handler: Handler, deliveries: Sequence[Delivery], *, unpark: bool = False) -> set[UUID]:
        """Handle what is new of these in one transaction; which they were."""
        guard, name = self._inbox.guard, self._inbox.name
        by_id = {delivery.message.id: delivery.message for delivery in deliveries}
        entry = await guard.enter(name, by_id.keys())
        if entry.busy and len(by_id) == 1:
            raise Busy
        done = False
        try:
            some = len(entry.new) < len(by_id)  # hardly ever: and to look up every id is dear
            fresh = {id_: by_id[id_] for id_ in by_id if id_ in entry.new} if some else by_id
            work = _Work(self._inbox, handler, fresh, unpark)
            new = set[UUID]()
            if work.messages:
                with processing(self._system, (each for each in deliveries if each.message.id in work.messages)):
                    new = await self._run(work)
            done = True
        finally:
            if entry.new:
                await guard.leave(name, entry.new, done=done)
        if entry.busy:
            raise Busy
        reach("after-handled")
        return new

    async def _run(self, work: _Work) -> set[UUID]:
        try:
            return await (self._run_async(work) if work.handler.is_async else self._run_blocking(work))
        except Exception as exc:
            if self._inbox.guard.is_known(exc):
                return set()
            raise

    async def _run_async(self, work: _Work) -> set[UUID]:
        async with self._store.transaction() as tx:
            new = await tx.remember(work.name, work.ids) if work.in_transaction else work.ids
            if work.unpark:
                await tx.unpark(work.name, work.ids)
            reach("after-remembered")
            if new:
                with causing(work.cause(new)), _blaming(tx):
                    await work.handler.function(work.argument(new), tx.handle)
            _require_whole(tx)
            reach("before-handled")
        return new

    async def _run_blocking(self, work: _Work) -> set[UUID]:
        context = contextvars.copy_context()
        new: set[UUID] = await self._threads.call(lambda each: context.run(self._blocking, each), work)
        return new

    def _blocking(self, work: _Work) -> set[UUID]:
        with self._store.blocking() as tx:
            new = tx.remember(work.name, work.ids) if work.in_transaction else work.ids
            if work.unpark:
                tx.unpark(work.name, work.ids)
            reach("after-remembered")
            if new:
                with causing(work.cause(new)), _blaming(tx):
                    _require_done(work.handler.function(work.argument(new), tx.handle))
            _require_whole(tx)
            reach("before-handled")
        return new

    async def _failed(self, delivery: Delivery, exc: BaseException) -> Result:
        fault, error = self._fault(exc), f"{type(exc).__name__}: {exc}"
        if not fault.retryable:
            return await self._give_up(delivery, fault.code, error)
        attempts = await self._store.failed(self._inbox.name, delivery.message.id, fault.code, error)
        reach("after-failed")
        if attempts == 0:
            return Done("known")
        decision = self._inbox.retry.decide(attempts, retry_after=fault.retry_after)
        if isinstance(decision, GiveUp):
            return await self._give_up(delivery, decision.code, f"{fault.code}: {error}")
        return Again(decision.delay, fault.code, error)

    def _fault(self, exc: BaseException) -> Fault:
        match exc:
            case CorruptPayload():
                return Fault(code=CORRUPT_PAYLOAD, business=True, retryable=False)
            case Broken():
                return Fault(code=BROKEN_TRANSACTION)
        return fault_of(exc, self._inbox.faults)

    async def _give_up(self, delivery: Delivery, code: str, error: str) -> Result:
        await self._store.bury(self._inbox.name, delivery, code, error)
        reach("after-parked")
        return Parking(code, error)


class Busy(Exception):
    """Another consumer of this name handles it now."""


@dataclass(slots=True)
class _Work:
    """What one transaction is to do."""

    inbox: Inbox
    handler: Handler
    messages: dict[UUID, Message]
    unpark: bool

    @property
    def name(self) -> str:
        return self.inbox.name

    @property
    def in_transaction(self) -> bool:
        return self.inbox.guard.in_transaction

    @property
    def ids(self) -> set[UUID]:
        return set(self.messages)

    def argument(self, new: set[UUID]) -> Any:
        """What the handler gets of these: one, or a list in the order they came."""
        read: Callable[[Message], Any] = self.handler.read
        all_of_them = len(new) == len(self.messages)
        payloads = [read(message) for id_, message in self.messages.items() if all_of_them or id_ in new]
        return payloads if self.handler.batch is not None else payloads[0]

    def cause(self, new: set[UUID]) -> Message | None:
        return self.messages[next(iter(new))] if len(new) == 1 else None


@contextmanager
def _blaming(tx: Transaction | BlockingTransaction) -> Iterator[None]:
    """What a handler raises because the database went away is the database's, and costs no attempt."""
    try:
        yield
    except Exception as exc:
        if tx.is_away():
            raise StoreUnavailable(f"The database went away while a message was handled: {exc}.") from exc
        raise


def _require_done(answer: object) -> None:
    """A plain function that hides an async one has returned, and done nothing."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("the handler is async behind a plain function: give `on` the `async def` itself")


def _require_whole(tx: Transaction | BlockingTransaction) -> None:
    if tx.is_away():
        raise StoreUnavailable("The database went away while a message was handled.")
    if not tx.is_whole():
        raise Broken(
            "the handler ended the transaction itself, or went on after an error inside it: leave commit and rollback to "
            "the inbox, and let errors out"
        )
