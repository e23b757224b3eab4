"""A function instead of a broker: `local://module:object` calls it with each message.

The function may be sync (it runs in a thread) or async. That it returns means that the message was handled; that it raises
means that it may work later. Messages of one key are handled one after the other, others side by side.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from typing import Any

from postroom.errors import ConfigError
from postroom.message import Message
from postroom.transport import Envelope, Failed, Outcome, Sent, TransportCapabilities, Unavailable

CONCURRENCY_DEFAULT = 16


class LocalPublisher:
    """See `postroom.transport` for what each method promises."""

    def __init__(self, handler: Callable[[Message], Any], *, concurrency: int = CONCURRENCY_DEFAULT) -> None:
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is async
        )
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="postroom-local")
        self._room = asyncio.Semaphore(concurrency)

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="local", durable=False, ordered=True, batches=False)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [Unavailable("KEY_STOPPED", "an earlier message of its key was not sent")] * len(
            batch
        )
        lines: dict[object, list[int]] = {}
        for place, envelope in enumerate(batch):
            lines.setdefault(envelope.message.key or envelope.message.id, []).append(place)

        async def handle_line(places: Sequence[int]) -> None:
            for place in places:
                outcomes[place] = await self._handle(batch[place].message, timeout)
                if not isinstance(outcomes[place], Sent):
                    return

        await asyncio.gather(*(handle_line(places) for places in lines.values()))
        return outcomes

    async def _handle(self, message: Message, timeout: timedelta) -> Outcome:
        async with self._room:
            try:
                async with asyncio.timeout(timeout.total_seconds()):
                    return Sent(await self._call(message))
            except TimeoutError:
                seconds = timeout.total_seconds()
                return Failed("TIMEOUT", f"the handler took longer than {seconds:g} s", unknown=True)
            except Exception as exc:  # noqa: BLE001 - whatever a handler raises is an outcome
                return Failed("HANDLER_ERROR", f"{type(exc).__name__}: {exc}")

    async def _call(self, message: Message) -> Any:
        if self._is_async:
            return await self._handler(message)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, message)


def load(name: str) -> Callable[[Message], Any]:
    """The function that `module:object` names, or ConfigError."""
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ConfigError(
            f"local://{name} names no function: write local://module:object, as in local://shop.mail:send."
        )
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as exc:
        raise ConfigError(f"local://{name} cannot be loaded: {exc}; check the name and PYTHONPATH.") from exc
    if not callable(found):
        raise ConfigError(f"local://{name} is a {type(found).__name__}, which cannot be called with a message.")
    handler: Callable[[Message], Any] = found
    return handler
