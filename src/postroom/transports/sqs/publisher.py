"""The sending side: batches of ten, many at once, those of a key one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

from botocore.exceptions import BotoCoreError, ClientError

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Failed, Outcome, Rejected, TransportCapabilities, Unavailable
from postroom.errors import ConfigError
from postroom.transports.publishing import Calls, Deadline, checked_source, timeout_at
from postroom.transports.sqs.batch import AT_ONCE, START_SHARE, Batch, letter_for
from postroom.transports.sqs.connection import Queue, SqsConnection
from postroom.transports.sqs.outcomes import NO_TOPIC, of_request
from postroom.transports.sqs.url import is_fifo, is_queue_name, read

CONNECTIONS = 4 * AT_ONCE
FRESH_SECONDS = 60.0
"""So long a queue's settings are believed: somebody may change how large a message may be."""


class SqsPublisher:
    """Deliver each message as one SQS message; that SQS names it among the successful is its word that it has it.

    ```python
    SqsPublisher("sqs://eu-central-1/orders.fifo", source="https://shop.example")
    ```

    A message goes to the queue its route names, else to its own topic, else to the URL's. In a FIFO queue its key is its
    group and its id what SQS knows a repeated one by. Credentials come from AWS's own chain, never from the URL.
    """

    def __init__(self, url: str, *, source: str = "postroom") -> None:
        self._address = read(url)
        self._source = checked_source(source)
        self._client = SqsConnection(self._address, connections=CONNECTIONS)
        self._queues: dict[str, tuple[Queue, float]] = {}
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        """Ordered if the queue that the URL names is."""
        queue = self._address.queue
        ordered = is_fifo(queue or "")
        return TransportCapabilities(name="sqs", durable=True, ordered=ordered, batches=True, topic=queue)

    async def open(self) -> None:
        """Look whether SQS answers, knows us, and has the URL's queue. When it does not answer, `publish` goes on trying."""
        if self._client.sqs is None:
            await self._client.open()
        self._calls.open()
        try:
            queue = await self._client.look()
        except ConfigError:
            await self.close()
            raise
        if queue is not None:
            self._remember(queue)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def close(self) -> None:
        await self._calls.close()
        await self._client.close()

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> list[Outcome]:
        own = self._address.queue
        names = [topic or message.topic or own for message, topic in batch]
        found = await self._find(dict.fromkeys(names), by.after(START_SHARE))
        letters = [
            letter_for(message, found[name], self._source) for (message, _), name in zip(batch, names, strict=True)
        ]
        return await Batch(self._client.sqs, letters, own, by).send()

    async def _find(self, names: Iterable[str | None], until: float) -> dict[str | None, Queue | Outcome]:
        """The queues of these names; or what is to be said of messages to them."""
        now = monotonic()
        found: dict[str | None, Queue | Outcome] = {None: NO_TOPIC}
        asked: dict[str, asyncio.Task[Queue | Outcome]] = {}
        async with asyncio.TaskGroup() as asking:
            for name in filter(None, names):
                queue, fresh_until = self._queues.get(name, (None, 0.0))
                if queue is not None and now < fresh_until:
                    found[name] = queue
                else:
                    asked[name] = asking.create_task(self._ask(name, until))
        return found | {name: task.result() for name, task in asked.items()}

    async def _ask(self, name: str, until: float) -> Queue | Outcome:
        if not is_queue_name(name):
            return Rejected("UNROUTABLE", f"{name!r} is not a queue name")
        try:
            async with timeout_at(until):
                queue = await self._client.queue(name)
        except TimeoutError:
            return Unavailable("TIMEOUT", f"no answer from {self._address.shown} when it was asked for {name!r}")
        except (BotoCoreError, ClientError, OSError) as exc:
            outcome = of_request(exc, name, of_the_url=name == self._address.queue)
            if isinstance(outcome, Unavailable) and outcome.code == "THROTTLED" and name in self._queues:
                return self._queues[name][0]  # it was there a minute ago, and so it will be
            if isinstance(outcome, Failed) and outcome.unknown:
                return Unavailable(
                    outcome.code, outcome.error
                )  # only a question: nothing was sent that might have arrived
            return outcome
        self._remember(queue)
        return queue

    def _remember(self, queue: Queue) -> None:
        self._queues[queue.name] = (queue, monotonic() + FRESH_SECONDS)
