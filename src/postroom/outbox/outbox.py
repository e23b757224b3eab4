"""Writing messages down, in the transaction that writes your data."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from postroom.causation import caused
from postroom.config.tables import TableNames
from postroom.errors import DuplicateMessage, InvalidMessage
from postroom.handles import Async, Handle, Sync, handle_for
from postroom.message import Message
from postroom.telemetry.tracing import creating
from postroom.validation import Limits, check

if TYPE_CHECKING:
    from postroom.events import Listeners


class Outbox:
    """Writes messages with the database handle you already hold: your data and your message, one commit.

    ```python
    outbox = Outbox()
    with session.begin():
        session.add(order)
        outbox.put(session, Message("order.paid", key=order.id, data={"amount": 12}))
    ```

    `put` never commits and never rolls back: your transaction decides. It refuses, with the remedy, a handle that is in
    none, since the message would then commit by itself; only a session of SQLAlchemy begins one here, as at any first
    statement. It talks to no broker: the relay does, after your commit. All is checked before the first row is written,
    so that a refused `put` has written nothing.

    On a handle of an async driver `put` returns a coroutine: `await outbox.put(connection, message)`. Without the `await`
    nothing is written: type checkers report it, and an async session of SQLAlchemy then refuses to commit. On any other
    handle `put` has written when it returns. Where OpenTelemetry is set up, each call is a span, and its context goes along.

    An error of the driver itself stays that driver's. Two are ours: SchemaMismatch, when the tables are not there, and
    DuplicateMessage, when the id or the idempotency key is; PostgreSQL then wants a rollback, as after any error.

    An Outbox has no state: one for the whole process is right, and any thread or task may use it.
    """

    def __init__(
        self,
        *,
        tables: TableNames = TableNames(),  # noqa: B008 - a frozen value
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
        listeners: Listeners | None = None,
        without_transactions: bool = False,
    ) -> None:
        self.without_transactions = without_transactions
        """Take PyMongo's Database, on a server that has no transactions; see docs/how-to/without-transactions.md."""
        self.tables = tables
        self.limits = limits
        self.listeners = listeners

    @overload
    def put(self, handle: Sync, message: Message) -> None: ...
    @overload
    def put(self, handle: Async, message: Message) -> Coroutine[Any, Any, None]: ...
    def put(self, handle: Any, message: Message) -> Coroutine[Any, Any, None] | None:
        """Write one message in the transaction that is open on the handle."""
        if not isinstance(message, Message):
            raise InvalidMessage(f"put takes one Message, not {_a(message)}: for several there is put_many.")
        return self._write(handle_for(handle), [message])

    @overload
    def put_many(self, handle: Sync, messages: Iterable[Message]) -> None: ...
    @overload
    def put_many(self, handle: Async, messages: Iterable[Message]) -> Coroutine[Any, Any, None]: ...
    def put_many(self, handle: Any, messages: Iterable[Message]) -> Coroutine[Any, Any, None] | None:
        """Write the messages in this order, a thousand in a round trip. The handle is checked even if there are none."""
        taken = handle_for(handle)
        if isinstance(messages, Message) or not isinstance(messages, Iterable):
            raise InvalidMessage(f"put_many takes several messages, not {_a(messages)}: for one there is put.")
        batch = list(messages)
        for each in batch:
            if not isinstance(each, Message):
                raise InvalidMessage(f"put_many takes several messages, but one of them is {_a(each)}.")
        return self._write(taken, batch)

    def _write(self, handle: Handle, messages: Sequence[Message]) -> Coroutine[Any, Any, None] | None:
        for message in messages:
            check(message, self.limits)
        if len(messages) > 1:
            _check_unique("id", [message.id for message in messages])
            _check_unique("idempotency key", [each.idempotency_key for each in messages if each.idempotency_key])
        if not (self.without_transactions and getattr(handle, "stands_alone", False)):
            handle.check()
        written = creating(caused(messages), self.limits, lambda batch: handle.write(batch, self.tables))
        if not self.listeners:
            return written
        if written is None:
            _tell(self.listeners, len(messages))
            return None
        return _tell_after(written, self.listeners, len(messages))


async def _tell_after(written: Coroutine[Any, Any, None], listeners: Listeners, count: int) -> None:
    await written
    _tell(listeners, count)


def _tell(listeners: Listeners, count: int) -> None:
    from postroom.events import MessagesPut

    listeners(MessagesPut(count=count))


def _check_unique(what: str, values: Sequence[object]) -> None:
    if len(set(values)) == len(values):
        return
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise DuplicateMessage(
                f"Two of the messages have the {what} {value}: nothing was written. Send one of them."
            )
        seen.add(value)


def _a(thing: object) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"
