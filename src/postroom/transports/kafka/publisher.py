"""The sending side: each batch in a thread of its own, on a line of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

from confluent_kafka import KafkaException

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, TransportCapabilities, Unavailable
from postroom.errors import ConfigError, TransportRefused
from postroom.transports.kafka.batch import Batch
from postroom.transports.kafka.encoding import Encoding
from postroom.transports.kafka.outcomes import not_answered
from postroom.transports.kafka.producer import ProducerConnection
from postroom.transports.kafka.url import read

OPEN_SECONDS = 5.0
AT_ONCE = 10_000
"""A larger batch is handed over in a thread: it might not fit into librdkafka's queue, and wait."""
THREADS = 32
"""How many batches can be on their way at once; more wait for their turn."""


class KafkaPublisher:
    """Deliver each message as a record; an answer from all replicas in sync is the cluster's word that it has it.

    ```python
    KafkaPublisher("kafka://broker-1:9092,broker-2:9092/orders?compression.type=lz4", source="https://shop.example")
    ```

    A message goes to the topic its route names, else to its own, else to the URL's. Its key is the record's key. What else
    stands in the URL are settings of librdkafka; those that would make a delivery unsafe are refused.
    """

    def __init__(self, url: str, *, source: str = "postroom") -> None:
        if not source:
            raise ConfigError("source is empty; CloudEvents needs one, like 'https://shop.example'.")
        self._settings = read(url)
        self._binding = Encoding(source)
        self._idle: deque[ProducerConnection] = deque()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="kafka", durable=True, ordered=True, batches=True, topic=self._settings.topic)

    async def open(self) -> None:
        """Look whether a broker answers and the URL's topic is there. When none does, `publish` goes on trying."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="postroom-kafka")
        await asyncio.get_running_loop().run_in_executor(self._threads, self._look)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        if self._threads is None:
            return [Unavailable("CLOSED", "the publisher is not open")] * len(batch)
        if not batch:
            return []
        seconds = timeout.total_seconds()
        # A little less than it has, so that the answer is there in time.
        until = monotonic() + seconds - min(0.1 * seconds, 0.25)
        sending = Batch(batch, self._settings.topic, self._binding.headers_of, until)
        line = self._ready_line(sending)
        if line is not None:
            # Handing over waits for nobody: in a thread it would only fight for the interpreter with what else is under way.
            sending.hand_over(line, range(len(batch)))
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._send, sending, line)

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            # Each thread answers by its deadline, and leaves nothing in its line.
            await asyncio.to_thread(threads.shutdown)
            await asyncio.to_thread(self._idle.clear)

    def _ready_line(self, sending: Batch) -> ProducerConnection | None:
        """A line that delivered just now, to all of these topics: nobody need be asked."""
        if len(sending.outcomes) > AT_ONCE or not self._idle:
            return None
        line = self._idle.pop()
        if line.is_ready(sending.topics):
            return line
        self._idle.append(line)
        return None

    def _send(self, sending: Batch, line: ProducerConnection | None) -> Sequence[Outcome]:
        """Send it, or see it through where it was handed over to this line already."""
        places = range(len(sending.outcomes))
        if line is not None:
            sending.finish(line, places)
        else:
            try:
                line = self._line()
            except KafkaException as exc:
                # The settings were good when they were read; now a certificate is gone, or there is no room for a thread.
                return [Unavailable("NO_PRODUCER", exc.args[0].str())] * len(places)
            if sending.look(line, self._settings.shown):
                sending.send(line, places)
        if not line.is_spent:
            self._idle.append(line)
        with suppress(KafkaException):
            sending.go_again(
                lambda alone: ProducerConnection(self._settings.alone() if alone else self._settings.producer)
            )
        return sending.outcomes

    def _line(self) -> ProducerConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return ProducerConnection(self._settings.producer)

    def _look(self) -> None:
        line, topic, shown = self._line(), self._settings.topic, self._settings.shown
        until = monotonic() + OPEN_SECONDS
        try:
            if topic is None:
                line.look_around(until)
                return
            wrong = line.look([topic], until)
        except KafkaException:
            raise not_answered(line.noted, shown) from None
        finally:
            self._idle.append(line)
        if topic in wrong:
            raise TransportRefused(
                f"{shown} cannot be written to: {wrong[topic].str()}; create the topic, or correct the URL."
            )
