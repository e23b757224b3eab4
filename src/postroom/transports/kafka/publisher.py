"""The sending side: each batch in a thread of its own, with a librdkafka producer of its own."""

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
from postroom.errors import TransportRefused
from postroom.transports.kafka.batch import Batch
from postroom.transports.kafka.connection import ProducerConnection
from postroom.transports.kafka.encoding import Encoding
from postroom.transports.kafka.outcomes import not_answered
from postroom.transports.kafka.url import read
from postroom.transports.publishing import Calls, Deadline, checked_source

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
        self._settings = read(url)
        self._encoding = Encoding(checked_source(source))
        self._idle: deque[ProducerConnection] = deque()
        self._threads: ThreadPoolExecutor | None = None
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="kafka", durable=True, ordered=True, batches=True, topic=self._settings.topic)

    async def open(self) -> None:
        """Look whether a broker answers and the URL's topic is there. When none does, `publish` goes on trying."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="postroom-kafka")
        self._calls.open()
        await asyncio.get_running_loop().run_in_executor(self._threads, self._look)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        await self._calls.close()
        if threads is not None:
            # Each thread answers by its deadline, also when nobody waits for it any more, and leaves its producer empty.
            await asyncio.to_thread(threads.shutdown)
            await asyncio.to_thread(self._idle.clear)

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        sending = Batch(batch, self._settings.topic, self._encoding.headers_of, by.until)
        producer = self._ready_producer(sending)
        if producer is not None:
            # Handing over waits for nobody: in a thread it would only fight for the interpreter with what else is under way.
            sending.hand_over(producer, range(len(batch)))
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._send, sending, producer)

    def _ready_producer(self, sending: Batch) -> ProducerConnection | None:
        """Return a producer that delivered just now, to all of these topics: nobody need be asked."""
        if len(sending.outcomes) > AT_ONCE or not self._idle:
            return None
        producer = self._idle.pop()
        if producer.is_ready(sending.topics):
            return producer
        self._idle.append(producer)
        return None

    def _send(self, sending: Batch, producer: ProducerConnection | None) -> Sequence[Outcome]:
        """Send it, or see it through where it was handed over to this producer already."""
        places = range(len(sending.outcomes))
        if producer is not None:
            sending.finish(producer, places)
        else:
            try:
                producer = self._producer()
            except KafkaException as exc:
                # The settings were good when they were read; now a certificate is gone, or there is no room for a thread.
                return [Unavailable("NO_PRODUCER", exc.args[0].str())] * len(places)
            if sending.look(producer, self._settings.shown):
                sending.send(producer, places)
        if not producer.is_spent:
            self._idle.append(producer)
        with suppress(KafkaException):
            sending.go_again(
                lambda alone: ProducerConnection(self._settings.alone() if alone else self._settings.producer)
            )
        return sending.outcomes

    def _producer(self) -> ProducerConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return ProducerConnection(self._settings.producer)

    def _look(self) -> None:
        producer, topic, shown = self._producer(), self._settings.topic, self._settings.shown
        until = monotonic() + OPEN_SECONDS
        try:
            if topic is None:
                producer.look_around(until)
                return
            wrong = producer.look([topic], until)
        except KafkaException:
            raise not_answered(producer.noted, shown) from None
        finally:
            self._idle.append(producer)
        if topic in wrong:
            raise TransportRefused(
                f"{shown} cannot be written to: {wrong[topic].str()}; create the topic, or correct the URL."
            )
