"""The sending side: each batch on a line of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, TransportCapabilities, Unavailable
from postroom.errors import ConfigError, TransportRefused
from postroom.transports.amqp.batch import Batch
from postroom.transports.amqp.connection import TROUBLE, in_time
from postroom.transports.amqp.encoding import Encoding
from postroom.transports.amqp.outcomes import STEPS, away, not_let_in, words_of
from postroom.transports.amqp.producer import ProducerConnection, open_line
from postroom.transports.amqp.url import AmqpUrl, read

OPEN_SECONDS = 5.0
IDLE_MAX = 8
"""So many lines are kept for later batches."""


class AmqpPublisher:
    """Deliver each message to RabbitMQ, persistent and mandatory; its confirm is the broker's word that it has it.

    ```python
    AmqpPublisher("amqp://app:secret@broker/shop?exchange=orders", source="https://shop.example")
    ```

    The routing key is the topic that the route names, else the message's own, else the URL's, else the message's type.
    Without an exchange it is the name of a queue.
    """

    def __init__(self, url: str, *, source: str = "postroom") -> None:
        if not source:
            raise ConfigError("source is empty; CloudEvents needs one, like 'https://shop.example'.")
        self._address = read(url)
        if self._address.bindings:
            raise ConfigError(
                f"{self._address.shown} has a binding, which is for receivers; say routing_key=… instead."
            )
        self._binding = Encoding(source)
        self._idle: list[ProducerConnection] = []
        self._under_way: set[asyncio.Future[None]] = set()
        self._is_open = False

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="amqp", durable=True, ordered=True, batches=True)

    async def open(self) -> None:
        """Look whether the broker answers and the URL's exchange or queue is there. When not, `publish` goes on trying."""
        self._is_open = True
        until = monotonic() + OPEN_SECONDS
        shown = self._address.shown
        try:
            line = await open_line(self._address.server, until)
            await _check(line, self._address, until)
        except TROUBLE as exc:
            raise not_let_in(exc, shown) from None
        self._idle.append(line)

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        if not self._is_open:
            return [Unavailable("CLOSED", "the publisher is not open")] * len(batch)
        if not batch:
            return []
        seconds = timeout.total_seconds()
        # A little less than it has, so that the answer is there in time.
        until = monotonic() + seconds - min(0.1 * seconds, 0.25)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            return await self._send(batch, until)
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def close(self) -> None:
        self._is_open = False
        if self._under_way:
            await asyncio.wait(self._under_way)
        lines, self._idle = self._idle, []
        if lines:
            await asyncio.gather(*(line.close() for line in lines))

    async def _send(self, batch: Sequence[Envelope], until: float) -> Sequence[Outcome]:
        now = monotonic()
        try:
            # Half of the time, so that there is as much left to send.
            line = await self._line(now + (until - now) / 2)
        except TROUBLE as exc:
            return [away(exc, self._address.shown)] * len(batch)
        sending = Batch(batch, self._address, self._binding, until)
        try:
            await sending.run(line)
        except BaseException:
            line.cut()
            raise
        await self._put_back(line)
        return sending.outcomes

    async def _line(self, until: float) -> ProducerConnection:
        """A line that takes messages now."""
        while self._idle and not self._idle[-1].wire.is_open:
            self._idle.pop()
        line = self._idle.pop() if self._idle else await open_line(self._address.server, until)
        try:
            await line.look(until)
        except BaseException:
            line.cut()
            raise
        return line

    async def _put_back(self, line: ProducerConnection) -> None:
        if line.wire.is_open and (len(self._idle) < IDLE_MAX or not self._is_open):
            self._idle.append(line)  # when we are being closed, whoever does that closes it too
        else:
            await line.close()


async def _check(line: ProducerConnection, where: AmqpUrl, until: float) -> None:
    """ConfigError when the URL's exchange or queue is not there."""
    channel, name = line.channel, where.exchange or where.queue
    if not name:
        return
    asking = (
        channel.exchange_declare(name, passive=True) if where.exchange else channel.queue_declare(name, passive=True)
    )
    try:
        await in_time(asking, until, line.cut)
    except ChannelNotFoundEntity as exc:
        await line.close()
        raise TransportRefused(
            f"{where.shown} cannot be written to: {words_of(exc)}; create it ({STEPS}), or correct the URL."
        ) from None
    except ChannelAccessRefused:
        await line.reopen(until)  # whoever may write need not be allowed to look
