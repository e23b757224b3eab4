"""A function instead of a broker: `local://module:object` calls it with each message.

The function may be sync (it runs in a thread) or async. That it returns means that the message was handled; that it raises
means that it may work later. Messages of one key are handled one after the other, others side by side.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from postroom.clock import monotonic
from postroom.config import objects
from postroom.containment import Escaped, contained
from postroom.contracts.transport import (
    Envelope,
    Failed,
    Outcome,
    Publisher,
    Sent,
    TransportCapabilities,
    TransportOptions,
    Unavailable,
)
from postroom.errors import ConfigError
from postroom.message import Message
from postroom.telemetry.tracing import processing
from postroom.text import one_line, trace, user_part, without_trace
from postroom.threads import Threads
from postroom.transports.ordering import KeyOrder
from postroom.transports.publishing import Calls, Deadline, timeout_at
from postroom.urls import split_scheme

log = logging.getLogger(__name__)
CONCURRENCY_DEFAULT = 16
START_SHARE = 0.5
"""Nothing is begun in the second half of the time: what begins in the first has at least as long as the one before it took."""
ENDED = Failed("HANDLER_ERROR", "the handler cancelled the task that called it", unknown=True)
TOLD_MAX = 10_000
"""Of so many messages it is remembered that their traceback was shown."""
STUCK_MAX = 64
"""So many calls may hang on after their time was up. More would fill the memory: then nothing is called until some end."""


def open_publisher(url: str, options: TransportOptions) -> Publisher:
    """See `postroom.transports.open_transport`."""
    return LocalPublisher(load(split_scheme(url)[1]), concurrency=options.concurrency or CONCURRENCY_DEFAULT)


class LocalPublisher:
    """See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, handler: Callable[[Message], Any], *, concurrency: int = CONCURRENCY_DEFAULT) -> None:
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is async
        )
        self._threads = Threads("postroom-local")
        self._room = asyncio.Semaphore(concurrency)
        self._told: set[UUID] = set()
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="local", durable=False, ordered=True, batches=False)

    async def open(self) -> None:
        self._calls.open()

    async def close(self) -> None:
        await self._calls.close()
        self._threads.close()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        order, last_start = KeyOrder([message.key for message, _ in batch]), by.after(START_SHARE)

        async def handle_key(head: int) -> None:
            place: int | None = head
            while place is not None:
                async with self._room:
                    if monotonic() > last_start:
                        return
                    # R26: if the function ends this very task, this is what became of its message.
                    order.outcomes[place] = ENDED
                    place = order.settle(place, await self._handle(batch[place], by.until))

        await asyncio.gather(*(handle_key(head) for head in order.first), return_exceptions=True)
        return order.outcomes

    async def _handle(self, envelope: Envelope, until: float) -> Outcome:
        if self._threads.stuck >= STUCK_MAX:
            return Unavailable(
                "HANDLERS_STUCK", f"{STUCK_MAX} calls of the handler never returned: fix it, and restart"
            )
        try:
            async with timeout_at(until):
                with contained():
                    return Sent(await self._call(envelope))
        except TimeoutError:
            return Failed("TIMEOUT", "the handler did not end in time", unknown=True)
        except Escaped as exc:
            return self._failed(envelope, exc.__cause__ or exc, str(exc))
        except Exception as exc:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self._failed(envelope, exc, trace(exc))

    def _failed(self, envelope: Envelope, error: BaseException, told: str) -> Failed:
        """Tell of it: the first time of each message with the traceback. How it goes on is the relay's."""
        message, first = envelope.message, envelope.message.id not in self._told
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(message.id)
        log.warning(
            "The function failed for message %s (%s, key %s): %s",
            message.id,
            one_line(message.type),
            one_line(message.key or "-"),
            one_line(without_trace(told)),
            exc_info=user_part(error) if first else None,
        )
        return Failed("HANDLER_ERROR", told)

    async def _call(self, envelope: Envelope) -> Any:
        with processing("local", (envelope,)):
            if self._is_async:
                return await self._handler(envelope.message)
            context = contextvars.copy_context()
            answer = await self._threads.call(lambda message: context.run(self._handler, message), envelope.message)
            # An async function behind a plain one, such as a decorator's: nothing is done yet.
            return await answer if inspect.isawaitable(answer) else answer


def load(name: str) -> Callable[[Message], Any]:
    """The function that `module:object` names, or ConfigError."""
    shown = f"local://{name}"
    found = objects.load(name, shown=shown, usage="local://module:object, as in local://shop.mail:send")
    if not callable(found):
        raise ConfigError(f"{shown} is a {type(found).__name__}, which cannot be called with a message.")
    handler: Callable[[Message], Any] = found
    return handler
