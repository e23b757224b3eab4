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

from postroom.config import objects
from postroom.containment import Escaped, contained
from postroom.contracts.transport import (
    KEY_STOPPED,
    NOT_STARTED,
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
from postroom.urls import split_scheme

log = logging.getLogger(__name__)
CONCURRENCY_DEFAULT = 16
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

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="local", durable=False, ordered=True, batches=False)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self._threads.close()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        begin = asyncio.get_running_loop().time()
        deadline = begin + timeout.total_seconds()
        # A message begun in the first half has at least as long as the one before it took.
        last_start = begin + timeout.total_seconds() / 2
        outcomes: list[Outcome] = [NOT_STARTED] * len(batch)
        lines: dict[object, list[int]] = {}
        for place, envelope in enumerate(batch):
            lines.setdefault(envelope.message.key or envelope.message.id, []).append(place)

        async def handle_line(places: Sequence[int]) -> None:
            for position, place in enumerate(places):
                async with self._room:
                    if asyncio.get_running_loop().time() > last_start:
                        return
                    # R26: if the function ends this very task, this is what became of its message.
                    outcomes[place] = ENDED
                    outcomes[place] = await self._handle(batch[place], deadline)
                if not isinstance(outcomes[place], Sent):
                    for later in places[position + 1 :]:
                        outcomes[later] = KEY_STOPPED
                    return

        await asyncio.gather(*(handle_line(places) for places in lines.values()), return_exceptions=True)
        return outcomes

    async def _handle(self, envelope: Envelope, deadline: float) -> Outcome:
        if self._threads.stuck >= STUCK_MAX:
            return Unavailable(
                "HANDLERS_STUCK", f"{STUCK_MAX} calls of the handler never returned: mend it, and restart"
            )
        try:
            async with asyncio.timeout_at(deadline):
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
