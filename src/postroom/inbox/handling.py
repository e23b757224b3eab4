"""Handling messages in one transaction with their rows."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from postroom.causation import causing
from postroom.containment import Escaped, contained
from postroom.contracts.inbox import UNFINISHED, BlockingTransaction, InboxStore, KnownQuery, Transaction
from postroom.contracts.outbox import ERROR_MAX
from postroom.contracts.transport import Delivery, Identity
from postroom.durations import format_duration
from postroom.errors import StoreUnavailable
from postroom.inbox.decoding import CorruptPayload
from postroom.inbox.errors import (
    BROKEN_TRANSACTION,
    CORRUPT_PAYLOAD,
    HANDLER_TIMEOUT,
    NO_EVENT,
    NO_HANDLER,
    ErrorClass,
    RejectMessage,
    error_class_of,
)
from postroom.inbox.inbox import Handler, Inbox
from postroom.inbox.suspects import CRASH_LOOP, CRASH_LOOP_SAID, UNFINISHED_SAID, Try, judged, was_delivered_before
from postroom.message import Message
from postroom.retry import GiveUp
from postroom.telemetry.failpoints import reach
from postroom.telemetry.tracing import processing
from postroom.text import describe, one_line, trace
from postroom.threads import Threads

BUSY_AGAIN = timedelta(seconds=1)
ENDED = (
    "the handler ended the transaction itself (commit, rollback, close, or a statement that commits): what it wrote may be "
    "committed, so check that before you requeue it; let the inbox end the transaction"
)
TOLD_MAX = ERROR_MAX - 32


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
    """What it says, and the end of its traceback."""
    attempts: int = 0
    """The tries made, this one included; 0: it was none."""
    cause: BaseException | None = None
    business: bool = False
    """The data or the rules are against it (`ErrorClass.business`)."""


@dataclass(frozen=True, slots=True)
class Dead:
    """It is given up: a person decides."""

    code: str
    error: str
    cause: BaseException | None = None
    """What the handler raised, where that is no verdict of its own."""
    business: bool = False
    """The data or the rules are against it (`ErrorClass.business`)."""


Result: TypeAlias = Done | Again | Dead
Begin: TypeAlias = Callable[[], Awaitable[bool]]
"""Something to do before a try; False: there is nothing to try any more."""


class Broken(Exception):
    """The handler returned, but its transaction is not as it was begun; or it ended the transaction, and then raised."""

    def __init__(self, reason: str, ended: set[Identity] | None = None) -> None:
        super().__init__(reason)
        self.ended = ended or set[Identity]()
        """The messages whose rows may be committed, because the handler ended the transaction itself."""


class TookTooLong(Exception):
    """The handler was cancelled, because its time was over."""


class Abandoned(Exception):
    """The handler returned to nobody."""


class Handling:
    """Handles deliveries of one inbox. Raises StoreUnavailable while the database is away: nothing was tried then."""

    def __init__(self, inbox: Inbox, store: InboxStore, threads: Threads, *, system: str) -> None:
        self._inbox, self._store, self._threads = inbox, store, threads
        self._system = system
        """What it comes from, as traces call it."""
        self._ended: dict[Identity, str] = {}
        """Messages of a batch whose handler ended the transaction itself, and what is to be said of it: their rows may be
        committed."""

    def is_suspect(self, delivery: Delivery) -> bool:
        """Was it delivered before, and is there a handler that may have killed its process by it?"""
        if delivery.fault is not None or not was_delivered_before(delivery):
            return False
        return self._inbox.handler_for(delivery.message.type) is not None

    async def look(self, delivery: Delivery) -> Try | Done | Dead:
        """What is to become of a suspect, by what is on record of it."""
        source, id_ = delivery.identity
        found = await self._store.known(KnownQuery(consumer=self._inbox.name, source=source, ids=[id_]))
        before = found[0] if found else None
        chance = judged(before, self._inbox.retry.max_attempts)
        if isinstance(chance, Try):
            return chance
        if chance is None or before is None:
            return Done("known")
        error = CRASH_LOOP_SAID if chance.code == CRASH_LOOP else f"{before.code}: {before.error}"
        return await self._give_up(delivery, chance.code, error)

    async def count(self, delivery: Delivery) -> int:
        """Count a suspect's try before it begins; 0: it is handled or dead meanwhile."""
        attempts = await self._store.failed(self._inbox.name, delivery.identity, UNFINISHED, UNFINISHED_SAID)
        reach("after-counted")
        return attempts

    async def one(
        self, delivery: Delivery, *, unbury: bool = False, on_record: bool = False, begin: Begin | None = None
    ) -> Result:
        """Handle one delivery, and say what is to become of it. A failure is on record when this returns.

        *on_record*: there may be a row that counts its tries, which must not say that it is failing afterwards. *begin* is
        called when nobody else has it in hand, before it is tried."""
        if delivery.fault is not None:
            return await self._give_up(delivery, NO_EVENT, delivery.fault)
        handler = self._inbox.handler_for(delivery.message.type)
        if handler is None:
            if self._inbox.unhandled == "skip":
                return Done("skipped")
            return await self._give_up(delivery, NO_HANDLER, f"no handler takes the type {delivery.message.type!r}")
        try:
            known = not await self._within(handler, [delivery], unbury=unbury, on_record=on_record, begin=begin)
            if known and on_record and not self._inbox.guard.in_transaction:
                async with self._store.transaction() as tx:
                    await tx.remember(self._inbox.name, [delivery.identity])
        except StoreUnavailable:
            raise
        except Busy:
            return Again(BUSY_AGAIN, "BUSY", "another consumer of this name handles it now")
        except Over:
            return Done("known")
        except Exception as exc:  # noqa: BLE001 - whatever a handler raises is a result
            return await self._failed(delivery, exc)
        ended = self._ended.pop(delivery.identity, None)
        if known and ended is not None:
            return await self._give_up(delivery, BROKEN_TRANSACTION, ended, committed=True)
        return Done("known" if known else "handled")

    async def many(self, handler: Handler, deliveries: Sequence[Delivery]) -> set[Identity] | str:
        """Handle these together, in one transaction; which were new. A text says why it did not work: nothing of it is kept."""
        if not deliveries:
            return set()
        try:
            return await self._within(handler, deliveries)
        except StoreUnavailable:
            raise
        except Broken as exc:
            self._ended |= dict.fromkeys(exc.ended, describe(exc))
            return describe(exc)
        except Exception as exc:  # noqa: BLE001 - they are handled one by one, and then it is told what is wrong
            return describe(_raised(exc))

    async def _within(
        self,
        handler: Handler,
        deliveries: Sequence[Delivery],
        *,
        unbury: bool = False,
        on_record: bool = False,
        begin: Begin | None = None,
    ) -> set[Identity]:
        """Handle what is new of these in one transaction; which they were."""
        guard, name = self._inbox.guard, self._inbox.name
        messages = {delivery.identity: delivery.message for delivery in deliveries}
        entry = await guard.enter(name, messages.keys())
        if entry.busy and len(messages) == 1:
            raise Busy
        done = False
        try:
            some = len(entry.new) < len(messages)  # hardly ever: and to look up every one is dear
            fresh = {event: messages[event] for event in messages if event in entry.new} if some else messages
            work = _Work(self._inbox, handler, fresh, unbury, on_record)
            new = set[Identity]()
            if work.messages:
                if begin is not None and not await begin():
                    raise Over
                handled = (each for each in deliveries if each.identity in work.messages)
                with processing(self._system, handled, self._facts_of):
                    new = await self._run(work)
            done = True
        finally:
            if entry.new:
                await guard.leave(name, entry.new, done=done)
        if entry.busy:
            raise Busy
        reach("after-handled")
        return new

    async def _run(self, work: _Work) -> set[Identity]:
        try:
            return await (self._run_async(work) if work.handler.is_async else self._run_blocking(work))
        except Exception as exc:
            # Of several, one may be known and the others new, and nothing of them was kept: they are handled one by one.
            if len(work.messages) == 1 and not isinstance(exc, Broken) and self._inbox.guard.is_known(exc):
                return set()
            raise

    async def _run_async(self, work: _Work) -> set[Identity]:
        async with self._store.transaction() as tx:
            written = await tx.remember(work.name, work.events) if work.is_written else work.events
            new = written if work.in_transaction else work.events
            if work.unbury:
                await tx.unbury(work.name, work.events)
            reach("after-remembered")
            if new:
                with causing(work.cause(new)), _blaming(tx, new):
                    await self._in_time(work, new, tx.handle)
            _require_whole(tx, new)
            reach("before-handled")
        return new

    async def _in_time(self, work: _Work, new: set[Identity], handle: Any) -> None:
        """Call an async handler, for no longer than the inbox allows."""
        limit = self._inbox.timeout
        clock = asyncio.timeout(None if limit is None else limit.total_seconds())
        try:
            async with clock:
                with contained():
                    await work.handler.function(*work.arguments(new, handle))
        except TimeoutError:
            if not clock.expired():
                raise  # the handler's own
        if limit is not None and clock.expired():
            raise TookTooLong(f"it ran longer than {format_duration(limit)}, and was cancelled")

    async def _run_blocking(self, work: _Work) -> set[Identity]:
        context = contextvars.copy_context()
        try:
            new: set[Identity] = await self._threads.call(lambda each: context.run(self._blocking, each), work)
        except asyncio.CancelledError:
            work.is_abandoned = True
            raise
        return new

    def _blocking(self, work: _Work) -> set[Identity]:
        with self._store.blocking() as tx:
            written = tx.remember(work.name, work.events) if work.is_written else work.events
            new = written if work.in_transaction else work.events
            if work.unbury:
                tx.unbury(work.name, work.events)
            reach("after-remembered")
            if new:
                with causing(work.cause(new)), _blaming(tx, new), contained():
                    _require_done(work.handler.function(*work.arguments(new, tx.handle)))
            if work.is_abandoned:
                raise Abandoned  # nobody waits for it any more, and the message goes to another
            _require_whole(tx, new)
            reach("before-handled")
        return new

    async def _failed(self, delivery: Delivery, exc: BaseException) -> Result:
        raised, error = _raised(exc), _told(exc)
        error_class = self._error_class(raised)
        cause = None if isinstance(raised, RejectMessage | CorruptPayload) else raised
        # What the handler itself may have committed is dead although its row says handled: else nobody would hear of it.
        committed = isinstance(exc, Broken) and bool(exc.ended) and self._inbox.guard.in_transaction
        if not error_class.retryable:
            return await self._give_up(
                delivery, error_class.code, error, cause, committed=committed, business=error_class.business
            )
        attempts = await self._store.failed(self._inbox.name, delivery.identity, error_class.code, error)
        reach("after-failed")
        if attempts == 0:
            if committed:
                return await self._give_up(
                    delivery, error_class.code, error, committed=True, business=error_class.business
                )
            return Done("known")
        decision = self._inbox.retry.decide(attempts, retry_after=error_class.retry_after)
        if isinstance(decision, GiveUp):
            error = f"{error_class.code}: {error}"
            return await self._give_up(delivery, decision.code, error, cause, business=error_class.business)
        return Again(decision.delay, error_class.code, error, attempts, cause, error_class.business)

    def _facts_of(self, exc: BaseException) -> dict[str, str | bool]:
        """What a span says of a failed try beside the error itself: its class."""
        if isinstance(exc, StoreUnavailable):
            return {}
        error_class = self._error_class(_raised(exc))
        return {"postroom.error.code": error_class.code, "postroom.error.business": error_class.business}

    def _error_class(self, exc: BaseException) -> ErrorClass:
        match exc:
            case CorruptPayload():
                return ErrorClass(code=CORRUPT_PAYLOAD, business=True, retryable=False)
            case Broken():
                below = None if exc.__cause__ is None else self._error_class(exc.__cause__)
                if isinstance(exc.__cause__, TookTooLong) and below is not None:
                    return below  # a driver may close what was cancelled in the middle of a statement
                return ErrorClass(code=BROKEN_TRANSACTION, retryable=below is None or below.retryable)
            case TookTooLong():
                return ErrorClass(code=HANDLER_TIMEOUT)
        return error_class_of(exc, self._inbox.errors)

    async def _give_up(
        self,
        delivery: Delivery,
        code: str,
        error: str,
        cause: BaseException | None = None,
        *,
        committed: bool = False,
        business: bool = False,
    ) -> Dead:
        await self._store.bury(self._inbox.name, delivery, code, error, committed=committed)
        reach("after-buried")
        return Dead(code, error, cause, business)


class Busy(Exception):
    """Another consumer of this name handles it now."""


class Over(Exception):
    """It was handled, or is dead, by the time that it could begin."""


@dataclass(slots=True)
class _Work:
    """What one transaction is to do."""

    inbox: Inbox
    handler: Handler
    messages: dict[Identity, Message]
    unbury: bool
    on_record: bool
    is_abandoned: bool = False
    """Nobody waits for it any more; it must not commit."""

    @property
    def is_written(self) -> bool:
        """Is its row written: to know it again, or because there is one that counts its tries?"""
        return self.in_transaction or self.on_record

    @property
    def name(self) -> str:
        return self.inbox.name

    @property
    def in_transaction(self) -> bool:
        return self.inbox.guard.in_transaction

    @property
    def events(self) -> set[Identity]:
        return set(self.messages)

    def arguments(self, new: set[Identity], handle: Any) -> tuple[Any, ...]:
        """What the handler gets of these: one, or a list in the order they came; the transaction; the messages, if it asks."""
        handler, all_of_them = self.handler, len(new) == len(self.messages)
        messages = [message for event, message in self.messages.items() if all_of_them or event in new]
        payloads = self._as_given(handler.read, messages)
        return (payloads, handle, self._as_given(handler.message, messages)) if handler.message else (payloads, handle)

    def _as_given(self, read: Callable[[Message], Any], messages: list[Message]) -> Any:
        read_ones = [read(message) for message in messages]
        return read_ones if self.handler.batch is not None else read_ones[0]

    def cause(self, new: set[Identity]) -> Message | None:
        return self.messages[next(iter(new))] if len(new) == 1 else None


def _raised(exc: BaseException) -> BaseException:
    """What the handler itself raised."""
    return exc.__cause__ or exc if isinstance(exc, Escaped) else exc


def _told(exc: BaseException) -> str:
    """What it says and the end of its traceback, with room for a code before it."""
    if not isinstance(exc, Escaped):
        return trace(exc, TOLD_MAX)
    head = one_line(str(exc))
    where = trace(_raised(exc), TOLD_MAX - len(head)).partition("\n")[2]
    return f"{head}\n{where}" if where else head


@contextmanager
def _blaming(tx: Transaction | BlockingTransaction, new: set[Identity]) -> Iterator[None]:
    """What a handler raises because the database went away is the database's, and costs no attempt. What it raises after it
    ended the transaction is not an ordinary error: nothing can be rolled back any more."""
    try:
        yield
    except Exception as exc:
        if tx.is_away():
            raise StoreUnavailable(f"The database went away while a message was handled: {describe(exc)}.") from exc
        if tx.is_ended():
            raise Broken(f"{ENDED}. Then it raised {describe(exc)}", new) from exc
        raise


def _require_done(answer: object) -> None:
    """A plain function that hides an async one has returned, and done nothing."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("the handler is async behind a plain function: give `on` the `async def` itself")


def _require_whole(tx: Transaction | BlockingTransaction, new: set[Identity]) -> None:
    if tx.is_away():
        raise StoreUnavailable("The database went away while a message was handled.")
    if tx.is_ended():
        raise Broken(ENDED, new)
    if not tx.is_whole():
        raise Broken("the handler went on after an error inside the transaction: let errors out")
