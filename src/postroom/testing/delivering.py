"""Delivering messages in a test, now and in order, to a function or a transport."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from postroom.contracts.transport import KEY_STOPPED, Envelope, Failed, Outcome, Publisher, Sent
from postroom.message import Message
from postroom.transports import open_publisher

TIMEOUT = timedelta(seconds=30)


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
