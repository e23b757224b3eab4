"""The sending side: each batch on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, TransportCapabilities
from postroom.errors import ConfigError, TransportRefused
from postroom.transports.amqp.batch import Batch
from postroom.transports.amqp.connection import TROUBLE, ProducerConnection, in_time, open_producer
from postroom.transports.amqp.encoding import Encoding
from postroom.transports.amqp.outcomes import STEPS, away, not_let_in, words_of
from postroom.transports.amqp.url import AmqpUrl, read
from postroom.transports.publishing import Calls, Deadline, checked_source

OPEN_SECONDS = 5.0
IDLE_MAX = 8
"""So many connections are kept for later batches."""


class AmqpPublisher:
    """Deliver each message to RabbitMQ, persistent and mandatory; its confirm is the broker's word that it has it.

    ```python
    AmqpPublisher("amqp://app:secret@broker/shop?exchange=orders", source="https://shop.example")
    ```

    The routing key is the topic that the route names, else the message's own, else the URL's, else the message's type.
    Without an exchange it is the name of a queue.
    """

    def __init__(self, url: str, *, source: str = "postroom") -> None:
        self._address = read(url)
        if self._address.bindings:
            raise ConfigError(
                f"{self._address.shown} has a binding, which is for receivers; say routing_key=… instead."
            )
        self._encoding = Encoding(checked_source(source))
        self._idle: list[ProducerConnection] = []
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="amqp", durable=True, ordered=True, batches=True)

    async def open(self) -> None:
        """Look whether the broker answers and the URL's exchange or queue is there. When not, `publish` goes on trying."""
        self._calls.open()
        until = monotonic() + OPEN_SECONDS
        shown = self._address.shown
        try:
            producer = await open_producer(self._address.server, until)
            await _check(producer, self._address, until)
        except TROUBLE as exc:
            raise not_let_in(exc, shown) from None
        self._idle.append(producer)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def close(self) -> None:
        await self._calls.close()
        producers, self._idle = self._idle, []
        if producers:
            await asyncio.gather(*(producer.close() for producer in producers))

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        try:
            # Half of the time, so that there is as much left to send.
            producer = await self._producer((by.begin + by.until) / 2)
        except TROUBLE as exc:
            return [away(exc, self._address.shown)] * len(batch)
        sending = Batch(batch, self._address, self._encoding, by.until)
        try:
            await sending.run(producer)
        except BaseException:
            producer.cut()
            raise
        await self._put_back(producer)
        return sending.outcomes

    async def _producer(self, until: float) -> ProducerConnection:
        """Return a connection that takes messages now. Raises TROUBLE."""
        while self._idle and not self._idle[-1].connection.is_open:
            self._idle.pop()
        producer = self._idle.pop() if self._idle else await open_producer(self._address.server, until)
        try:
            await producer.look(until)
        except BaseException:
            producer.cut()
            raise
        return producer

    async def _put_back(self, producer: ProducerConnection) -> None:
        if producer.connection.is_open and (len(self._idle) < IDLE_MAX or not self._calls.is_open):
            self._idle.append(producer)  # when we are being closed, whoever does that closes it too
        else:
            await producer.close()


async def _check(producer: ProducerConnection, where: AmqpUrl, until: float) -> None:
    """ConfigError when the URL's exchange or queue is not there."""
    channel, name = producer.channel, where.exchange or where.queue
    if not name:
        return
    asking = (
        channel.exchange_declare(name, passive=True) if where.exchange else channel.queue_declare(name, passive=True)
    )
    try:
        await in_time(asking, until, producer.cut)
    except ChannelNotFoundEntity as exc:
        await producer.close()
        raise TransportRefused(
            f"{where.shown} cannot be written to: {words_of(exc)}; create it ({STEPS}), or correct the URL."
        ) from None
    except ChannelAccessRefused:
        await producer.reopen(until)  # whoever may write need not be allowed to look
