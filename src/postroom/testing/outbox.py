"""The outbox as a test sees it: what was put, and what becomes of it when it is relayed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from postroom.config.tables import TableNames
from postroom.contracts.ops import OPEN, Query
from postroom.contracts.transport import KEY_STOPPED, Envelope, Failed, Outcome, Publisher, Sent
from postroom.errors import ConfigError
from postroom.message import UNSET, Message
from postroom.testing.reading import Found, Put, read
from postroom.transports import open_publisher

FIELDS = frozenset(field.name for field in fields(Message)) - {"not_before"}
"""What can be compared. When it is due is the outbox's own business once it is written."""
SHOWN = 20
"""How many messages a failure names."""
TIMEOUT = timedelta(seconds=30)


class SeenOutbox:
    """What is in an outbox, seen with the connection or session that a test holds, or by the URL of its store.

    In an async test every answer is awaited, in any other test none is."""

    def __init__(
        self, source: Any = None, tables: TableNames | None = None, *, pending: list[Later] | None = None
    ) -> None:
        self._source, self._tables = source, tables or TableNames()
        self._pending = [] if pending is None else pending
        self._cleared: set[UUID] = set()
        self._relayed: set[UUID] = set()

    def __call__(self, source: Any, tables: TableNames | None = None) -> SeenOutbox:
        """The same, seen with another connection, session or URL."""
        return SeenOutbox(source, tables or self._tables, pending=self._pending)

    def messages(self, type: str = "*", *, key: object = UNSET) -> Any:
        """What was put, oldest first: all of it, or what fits a pattern such as `order.*`, and has this key."""
        return self._answer("messages", Wanted(type, key).among)

    def assert_put(
        self, type: str, *, key: object = UNSET, data: Any = UNSET, times: int | None = None, **also: Any
    ) -> Any:
        """Fail unless such a message was put; else answer the first one. Of the key, the data and further fields of `Message`
        only those given are compared; with *times*, exactly so many must be there."""
        __tracebackhide__ = True
        if unknown := also.keys() - FIELDS:
            raise TypeError(f"A message has no {' and no '.join(sorted(unknown))}; it has {', '.join(sorted(FIELDS))}.")
        # As it comes out of the outbox: a tuple is a list there, a date a text.
        wanted = Wanted(type, key, also if data is UNSET else {**also, "data": Message(type, data=data).data})

        def judge(messages: Sequence[Message]) -> Message | None:
            __tracebackhide__ = True
            found = wanted.among(messages)
            if (not found) if times is None else len(found) != times:
                raise AssertionError(wanted.missed(messages, times))
            return found[0] if found else None

        return self._answer("assert_put", judge)

    def assert_nothing_put(self, type: str = "*", *, key: object = UNSET) -> Any:
        """Fail if a message was put, of this type and key where given."""
        __tracebackhide__ = True

        def judge(messages: Sequence[Message]) -> None:
            __tracebackhide__ = True
            if found := Wanted(type, key).among(messages):
                raise AssertionError(f"No {Wanted(type, key)} should have been put, but there is:\n{listed(found)}")

        return self._answer("assert_nothing_put", judge)

    def clear(self) -> Any:
        """Look away from what was put until now: only what comes later is seen. Nothing is deleted."""
        return self._answer("clear", lambda messages: self._cleared.update(each.id for each in messages))

    def relay(self, to: Callable[[Message], Any] | Publisher | str, *, check: bool = True) -> Any:
        """Deliver now, oldest first, what was put and is still open: to a function, sync or async, to a `Publisher`, or to the
        URL of a transport. Each message and what came of it, as `Relayed`.

        What was sent is not sent again by the next call. The first failure is raised, unless *check* is False. The rows in the
        database stay as they are, and no time is waited for: neither `not_before` nor a retry."""

        if isinstance(to, str) or hasattr(to, "publish"):
            return self._answer("relay", lambda due: publish(to, due, self._relayed, check=check), due=True)
        delivery = Delivery(to, self._relayed, check=check)
        return self._answer("relay", delivery.later if delivery.is_async else delivery.now, due=True)

    # ── reading, and waiting or not ──

    def _answer(self, name: str, of: Callable[[list[Message]], Any], *, due: bool = False) -> Any:
        """What `of` makes of what is there now, or of what is still to be sent: at once, or, in an async test, when awaited."""
        __tracebackhide__ = True
        if _in_a_loop():
            return Later(name, self._awaited(of, due=due), self._pending)
        found = self._read()
        if isinstance(found, Awaitable):
            return asyncio.run(self._awaited(of, found, due=due))
        answer = of(self._seen(found, due=due))
        return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

    async def _awaited(self, of: Callable[[list[Message]], Any], found: Found | None = None, *, due: bool) -> Any:
        __tracebackhide__ = True
        found = self._read() if found is None else found
        answer = of(self._seen(await found if isinstance(found, Awaitable) else found, due=due))
        return await answer if inspect.iscoroutine(answer) else answer

    def _seen(self, put: Sequence[Put], *, due: bool) -> list[Message]:
        seen = [each for each in put if each.message.id not in self._cleared]
        return [each.message for each in seen if not due or (each.is_open and each.message.id not in self._relayed)]

    def _read(self) -> Found:
        if self._source is None:
            raise ConfigError(
                "postroom_outbox knows no outbox: override the fixture postroom_store, so that it returns the connection or "
                "session of the test, or a URL; or write postroom_outbox(connection)."
            )
        if isinstance(self._source, str):
            return _committed(self._source, self._tables)
        return read(self._source, self._tables)


class Later:
    """An answer that has to be awaited. One that was forgotten would be a test that cannot fail."""

    def __init__(self, name: str, answer: Coroutine[Any, Any, Any], pending: list[Later]) -> None:
        self.name, self._answer, self._pending = name, answer, pending
        pending.append(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        self._pending.remove(self)
        return self._answer.__await__()

    def forget(self) -> None:
        self._answer.close()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _committed(url: str, tables: TableNames) -> Sequence[Put]:
    from postroom.stores import must_exist, open_store

    must_exist(url)
    async with open_store(url, tables=tables) as store:
        await store.schema.check()
        return [Put(each.message, each.status in OPEN) for each in await store.ops.find(Query())]


# ── which messages a test means ──


@dataclass(frozen=True)
class Wanted:
    """Messages whose type fits a pattern; with this key and these fields, where they are given."""

    type: str = "*"
    key: object = UNSET
    fields: Mapping[str, Any] = field(default_factory=dict)

    def near(self, messages: Sequence[Message]) -> list[Message]:
        """Those of this type and key."""
        key = self.key if self.key is UNSET or self.key is None else str(self.key)
        return [each for each in messages if fnmatchcase(each.type, self.type) and (key is UNSET or each.key == key)]

    def among(self, messages: Sequence[Message]) -> list[Message]:
        """Those that are meant."""
        return [
            each for each in self.near(messages) if all(_value(each, name) == it for name, it in self.fields.items())
        ]

    def missed(self, messages: Sequence[Message], times: int | None) -> str:
        """What to say when they are not there, or not so many times: what is there instead."""
        said = (
            f"No {self} was put."
            if times is None
            else f"{self} was put {len(self.among(messages))} times, not {times}."
        )
        if near := self.near(messages):
            return f"{said} Of that type and key:\n{listed(near)}"
        return f"{said} In the outbox:\n{listed(messages)}"

    def __str__(self) -> str:
        parts = [self.type] if self.type != "*" else ["message"]
        parts += [] if self.key is UNSET else [f"key={self.key!r}"]
        return " ".join([*parts, *(f"{name}={value!r}" for name, value in self.fields.items())])


def listed(messages: Sequence[Message]) -> str:
    """A line for each message, up to so many."""
    lines = [f"  {each.type} key={each.key!r} data={_value(each, 'data')!r}" for each in messages[:SHOWN]]
    more = len(messages) - SHOWN
    return "\n".join([*lines, *([f"  and {more:,} more"] if more > 0 else [])]) or "  nothing"


def _value(message: Message, name: str) -> Any:
    """A field of the message; of its data, where they are no JSON, the bytes."""
    try:
        return getattr(message, name)
    except ValueError:
        return message.body


# ── delivering them ──


@dataclass(frozen=True, slots=True)
class Relayed:
    """A message that was delivered, and what came of it."""

    message: Message
    outcome: Outcome

    @property
    def is_sent(self) -> bool:
        """Did whoever got it say that it has it?"""
        return isinstance(self.outcome, Sent)


class Delivery:
    """Calls a function with one message after the other. A key stops at its first failure, as with a relay.

    With *check* what the function raises is raised here; else it is an outcome. The ids of what it took are added to *sent*."""

    def __init__(self, handler: Callable[[Message], Any], sent: set[UUID], *, check: bool) -> None:
        self._handler, self._sent, self._check = handler, sent, check
        self._stopped: set[str] = set()
        self._done: list[Relayed] = []

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._handler) or inspect.iscoroutinefunction(
            getattr(self._handler, "__call__", None)  # noqa: B004 - an object whose call is async
        )

    def now(self, messages: Sequence[Message]) -> list[Relayed]:
        """In this thread, where the test's connection is at home."""
        for message in self._in_turn(messages):
            try:
                self._note(message, Sent(self._handler(message)))
            except Exception as exc:
                self._failed(message, exc)
                if self._check:
                    raise
        return self._done

    async def later(self, messages: Sequence[Message]) -> list[Relayed]:
        """In this event loop."""
        for message in self._in_turn(messages):
            try:
                answer = self._handler(message)
                self._note(message, Sent(await answer if isinstance(answer, Awaitable) else answer))
            except Exception as exc:
                self._failed(message, exc)
                if self._check:
                    raise
        return self._done

    def _in_turn(self, messages: Sequence[Message]) -> Iterator[Message]:
        for message in messages:
            if message.key in self._stopped:
                self._note(message, KEY_STOPPED)
            else:
                yield message

    def _failed(self, message: Message, exc: Exception) -> None:
        if message.key is not None:
            self._stopped.add(message.key)
        self._note(message, Failed("HANDLER_ERROR", f"{type(exc).__name__}: {exc}"))

    def _note(self, message: Message, outcome: Outcome) -> None:
        self._done.append(Relayed(message, outcome))
        if isinstance(outcome, Sent):
            self._sent.add(message.id)


async def publish(to: Any, messages: Sequence[Message], sent: set[UUID], *, check: bool) -> list[Relayed]:
    """Publish them in one batch, to a URL or a publisher. What is made here is closed here."""
    publisher: Publisher = open_publisher(to) if isinstance(to, str) else to
    await publisher.open()
    try:
        outcomes = await publisher.publish([Envelope(message) for message in messages], timeout=TIMEOUT)
    finally:
        if isinstance(to, str):
            await publisher.close()
    done = [Relayed(message, outcome) for message, outcome in zip(messages, outcomes, strict=True)]
    sent.update(each.message.id for each in done if each.is_sent)
    wrong = next((each for each in done if not each.is_sent), None)
    if check and wrong is not None:
        raise AssertionError(f"{wrong.message.type} with the key {wrong.message.key!r} was not sent: {wrong.outcome}")
    return done
