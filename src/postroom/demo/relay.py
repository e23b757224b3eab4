"""The relay's process: `python -m postroom.demo.relay`. It talks with the director by lines of JSON, on stdin and stdout.

It is a relay like any other, but for what is done to it on purpose. What is not for Kafka goes to the director, who has the
broker and the webhook in its own process. When stdin ends, the director is gone, and it ends too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

from postroom.config.values import RelayConfig
from postroom.contracts.transport import (
    Envelope,
    Failed,
    Outcome,
    Publisher,
    Rejected,
    Sent,
    TransportCapabilities,
    TransportOptions,
)
from postroom.demo.database import TABLES
from postroom.demo.shop import PLACED, TOLD, order_of
from postroom.errors import PostroomError
from postroom.message import Message, cloudevent, from_cloudevent
from postroom.relay import Relay, Route
from postroom.retry import RetryPolicy, Table
from postroom.stores import open_store
from postroom.transports import open_publisher

SOURCE = "postroom-demo"
CONFIG = RelayConfig(
    poll=timedelta(milliseconds=50),
    # One message a batch: slow enough for the eye.
    batch=1,
    concurrency=2,
    lease=timedelta(seconds=4),
    send_timeout=timedelta(seconds=2),
)
BACKOFF_SECONDS = 0.3
MAX_ATTEMPTS = 20
"""No machine is so slow that something dies here by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the director says. The URLs may hold a password, so they come by stdin, not on the command line."""

    name: str
    store: str = field(repr=False)
    broker: str | None = field(repr=False)
    """Where to; None: to the director."""
    pace: float = 0.0
    """How many seconds a send takes at least."""
    refused: int | None = None
    """This order is refused by the broker."""
    stuck: int | None = None
    """After this order was confirmed, nothing more is heard of it here."""


class Process:
    """What goes on in this process."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._letters = count(1)
        self._answers: dict[int, asyncio.Future[int]] = {}

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Relay until the director ends it."""
        orders = self.orders
        retry = RetryPolicy(Table((timedelta(seconds=max(BACKOFF_SECONDS, 2 * orders.pace)),)), MAX_ATTEMPTS)
        broker: Publisher = ToDirector("broker", self)
        if orders.broker is not None:
            broker = open_publisher(orders.broker, TransportOptions(source=SOURCE))
        placed: Any = Faulty(broker, self)
        told: Any = Faulty(ToDirector("webhook", self), self)
        routes = [
            Route(to=placed, pattern=f"*.{PLACED}", retry=retry),
            Route(to=told, pattern=f"*.{TOLD}", retry=retry, name="webhook"),
        ]
        async with open_store(orders.store, tables=TABLES) as store, open_store(orders.store, tables=TABLES) as beats:
            relay = Relay(store, routes, config=CONFIG, name=orders.name, heartbeat=beats)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
            listening = asyncio.create_task(self._listen(lines, relay))
            say("ready")
            await relay.run()
            listening.cancel()

    async def bring(self, message: Message, to: str) -> int:
        """Bring a message to the director's *to*; return the status that it is answered with."""
        number = next(self._letters)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        print(json.dumps({"letter": number, "to": to, **packed(message)}), flush=True)
        try:
            return await answer
        finally:
            del self._answers[number]

    async def _listen(self, lines: asyncio.StreamReader, relay: Relay) -> None:
        while line := await lines.readline():
            said = json.loads(line)
            if "letter" not in said:
                self.orders = replace(self.orders, **said)
            elif (answer := self._answers.get(said["letter"])) is not None and not answer.done():
                answer.set_result(said["status"])
        relay.stop()


class ToDirector:
    """A publisher to the director. See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, to: str, process: Process) -> None:
        self._to, self._process = to, process

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="director", durable=False, ordered=True, batches=False)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        (envelope,) = batch
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                status = await self._process.bring(envelope.message, self._to)
        except TimeoutError:
            return [Failed("TIMEOUT", "no answer in time", unknown=True)]
        return [Sent(status) if status < 300 else Failed(f"HTTP_{status}", f"the answer was {status}")]


class Faulty:
    """A publisher to which things happen on purpose."""

    def __init__(self, inner: Publisher, process: Process) -> None:
        self._inner, self._process = inner, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        (envelope,) = batch
        await asyncio.sleep(self._process.orders.pace)
        number = order_of(envelope.message).number
        if number == self._process.orders.refused:
            return [Rejected("BAD_ADDRESS", "the broker takes no order without a street")]
        outcomes = await self._inner.publish(batch, timeout=timeout)
        if number == self._process.orders.stuck and isinstance(outcomes[0], Sent):
            # The broker has it, and the store does not know yet: here it is killed.
            say(f"confirmed {number}")
            await asyncio.Event().wait()
        return outcomes


def packed(message: Message) -> dict[str, Any]:
    """The message, as JSON can have it."""
    return {"event": cloudevent(message, SOURCE), "body": base64.b64encode(message.body or b"").decode()}


def unpacked(said: dict[str, Any]) -> Message:
    """The message that was packed."""
    return from_cloudevent(said["event"], base64.b64decode(said["body"]))


def say(line: str) -> None:
    """Tell the director."""
    print(json.dumps({"said": line}), flush=True)


async def _main() -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    if first := await lines.readline():
        said: dict[str, Any] = json.loads(first)
        await Process(Orders(**said)).run(lines)


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except PostroomError as exc:
        say(str(exc))
        sys.exit(1)
