"""Fresh JetStream streams, one per test, and what arrived in them."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from nats.js import JetStreamContext
    from nats.js.api import RawStreamMsg

T = TypeVar("T")


@contextmanager
def fresh_stream(url: str, **settings: Any) -> Iterator[str]:
    """A new, empty stream at the server of `url`, which takes the subjects `NAME.>`; deleted afterwards."""
    from nats.errors import Error

    name = f"test-{os.getpid()}-{secrets.token_hex(5)}"
    create(url, name, **settings)
    try:
        yield name
    finally:
        with suppress(Error, OSError, TimeoutError):
            at_once(url, lambda js: js.delete_stream(name))


def create(url: str, name: str, **settings: Any) -> None:
    from nats.js.api import StreamConfig

    config = StreamConfig(**({"name": name, "subjects": [f"{name}.>"]} | settings))
    at_once(url, lambda js: js.add_stream(config))


def everything_in(url: str, stream: str) -> list[RawStreamMsg]:
    """All that the stream holds now, in its order."""

    async def read(js: JetStreamContext) -> list[RawStreamMsg]:
        state = (await js.stream_info(stream)).state
        return [await js.get_msg(stream, place) for place in range(max(state.first_seq, 1), state.last_seq + 1)]

    return at_once(url, read)


def at_once(url: str, do: Callable[[JetStreamContext], Awaitable[T]]) -> T:
    """Do something at the server, in a loop of its own: the test's may be running."""
    import nats

    async def work() -> T:
        client = await nats.connect(
            url, connect_timeout=5, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0
        )
        try:
            return await do(client.jetstream(timeout=20))
        finally:
            await client.close()

    outcome: list[T | BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
