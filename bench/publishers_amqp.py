"""Publishing to RabbitMQ: ours against what aiormq can do when every message is confirmed, in the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from datetime import timedelta
from time import perf_counter
from typing import Any, Self

import aiormq
from pamqp.commands import Basic
from tests.servers import Unavailable, start
from tests.servers.run import Run

from bench.messages import messages
from bench.table import Row, progress, ratio, take_turns
from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.transports.amqp import AmqpPublisher
from postroom.transports.amqp.encoding import PERSISTENT, Encoding

QUEUE = "bench"
BATCH = 1_000
TARGET = 0.7


def rows(quick: bool) -> Iterator[Row]:
    """Batches of a thousand, of as many keys and of half as many: of one key only one message is under way at a time."""
    progress("starting RabbitMQ")
    run = Run.create()
    try:
        with suppress(Unavailable):
            server = start("amqp", run=run)
            with Comparison(server.url, batches=2 if quick else 5) as comparison:
                for keys in (BATCH, BATCH // 2):
                    what = f"RabbitMQ {server.version}, batches of {BATCH:,}, {keys:,} keys"
                    comparison.batch = messages(BATCH, keys)
                    pairs = take_turns(what, comparison.theirs, comparison.ours, rounds=3 if quick else 9)
                    yield Row(
                        what=what,
                        base="aiormq, gathered confirms",
                        ours="AmqpPublisher",
                        unit="msg/s",
                        target=TARGET,
                        **ratio(pairs),
                    )
    finally:
        run.close()


class Comparison:
    """A queue, and both ways to fill it, each with a connection that stays."""

    def __init__(self, url: str, *, batches: int) -> None:
        self._url, self._batches = url, batches
        self._loop = asyncio.new_event_loop()
        self._publisher = AmqpPublisher(f"{url}?queue={QUEUE}")
        self._connection: Any = None
        self._channel: Any = None
        self.batch: list[Message] = []

    def __enter__(self) -> Self:
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.close()

    def theirs(self) -> float:
        """The same messages, with the same headers: all handed over, then all confirms waited for."""
        binding = Encoding("postroom")

        async def send() -> None:
            sending = [
                self._channel.basic_publish(
                    message.body,
                    routing_key=QUEUE,
                    properties=Basic.Properties(
                        content_type=message.content_type,
                        headers=binding.headers_of(message),
                        delivery_mode=PERSISTENT,
                    ),
                    mandatory=True,
                    wait=False,
                )
                for message in self.batch
            ]
            await asyncio.gather(*sending)

        return self._measure(send)

    def ours(self) -> float:
        batch = [Envelope(message) for message in self.batch]

        async def send() -> None:
            outcomes = await self._publisher.publish(batch, timeout=timedelta(seconds=60))
            assert all(isinstance(outcome, Sent) for outcome in outcomes), set(outcomes)

        return self._measure(send)

    def _measure(self, send: Any) -> float:
        """How many messages a second; the queue is empty before, and what is in it costs nobody afterwards."""
        self._run(self._channel.queue_purge(QUEUE))
        begin = perf_counter()
        for _ in range(self._batches):
            self._run(send())
        return self._batches * len(self.batch) / (perf_counter() - begin)

    async def _open(self) -> None:
        self._connection = aiormq.Connection(self._url)
        await self._connection.connect()
        self._channel = await self._connection.channel()
        await self._channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        await self._publisher.open()

    async def _close(self) -> None:
        await self._publisher.close()
        await self._connection.close()

    def _run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(doing)
