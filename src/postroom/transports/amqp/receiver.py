"""Receiving on one connection: one channel that is given the messages of one queue, for as long as it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiormq import Channel
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity

from postroom.contracts.transport import Delivery
from postroom.errors import TransportRefused
from postroom.transports.amqp.connection import (
    CLOSE_SECONDS,
    LOST,
    AmqpConnection,
    behind_us,
    connect,
    in_time,
    leave_behind,
)
from postroom.transports.amqp.encoding import read
from postroom.transports.amqp.outcomes import words_of
from postroom.transports.amqp.url import AmqpUrl
from postroom.transports.inflight import InFlight, InFlightMessage

HOLD_MILLISECONDS = 7 * 24 * 3600 * 1000
"""So long a message may be in flight before RabbitMQ closes the channel. Before 3.12 it is half an hour, and cannot be set."""


class Unacknowledged:
    """The delivery tags of one channel that were not acknowledged yet."""

    def __init__(self) -> None:
        self._tags: dict[int, None] = {}
        """In order."""

    def add(self, tag: int) -> None:
        """The broker delivered a message by this tag, which is higher than all before it."""
        self._tags[tag] = None

    def settle(self, tags: Sequence[int]) -> list[tuple[int, bool]]:
        """Return the acknowledgements to send for these: each a tag, with whether all before it are meant as well."""
        done = set(tags)
        together = last = 0
        for tag in self._tags:
            if tag not in done:
                break
            together, last = together + 1, tag
        for tag in done:
            del self._tags[tag]
        if together < 2:
            return [(tag, False) for tag in sorted(done)]
        return [(last, True), *((tag, False) for tag in sorted(done) if tag > last)]


class AmqpReceiver:
    """Opened by `open_receiver`."""

    def __init__(self, connection: AmqpConnection, channel: Channel, tell: Callable[[], None]) -> None:
        """*tell* is called when something arrived, or the connection is lost."""
        self._wire, self._channel, self._tell = connection, channel, tell
        self.in_flight = InFlight[int]()
        """By delivery tag."""
        self._unacknowledged = Unacknowledged()
        self._is_cancelled = False
        self._tag: str | None = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the channel is."""

    @property
    def is_open(self) -> bool:
        return self._wire.is_open and not self._channel.is_closed and not self._is_cancelled

    async def consume(self, queue: str, prefetch: int, until: float) -> None:
        """From now on messages arrive, up to *prefetch* that are not acknowledged."""
        self._channel.closing.add_done_callback(self._lost)
        self._channel.on_consumer_cancel_callbacks.add(self._cancelled)
        await self._in_time(self._channel.basic_qos(prefetch_count=prefetch), until)
        patience: dict[str, Any] = {"x-consumer-timeout": HOLD_MILLISECONDS}
        consuming = await self._in_time(self._channel.basic_consume(queue, self._arrived, arguments=patience), until)
        self._tag = consuming.consumer_tag

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge these, in as few words as possible. Silent when the connection is lost: then they come again."""
        tags = [delivery.token.receipt for delivery in self.in_flight.settle(deliveries)]
        if not tags:
            return
        saying = asyncio.ensure_future(self._say(self._unacknowledged.settle(tags)))
        # On a connection that breaks just now, aiormq may wait forever for the words to leave.
        await asyncio.wait({saying, self._gone}, return_when=asyncio.FIRST_COMPLETED)
        if not saying.done():
            leave_behind(saying)
            self._tell()

    async def _say(self, words: list[tuple[int, bool]]) -> None:
        try:
            for number, (tag, multiple) in enumerate(words, 1):
                # The last one waits until all of them have left.
                await self._channel.basic_ack(tag, multiple=multiple, wait=number == len(words))
        except LOST:
            self._tell()

    async def close(self) -> None:
        """What is in flight goes back to the front of the queue. Acknowledgements that are on their way arrive first."""
        if self.is_open:
            await asyncio.wait({behind_us(self._say_goodbye())}, timeout=CLOSE_SECONDS)
        await self._wire.close()

    async def _say_goodbye(self) -> None:
        """Slowly: closing the connection would overtake acknowledgements here, and closing the channel would drop those that
        RabbitMQ holds back from a quorum queue that has many to do. It asks the queue itself to let a receiver go."""
        if self._tag is not None:
            await self._channel.basic_cancel(self._tag)
        await self._channel.basic_qos(prefetch_count=1)
        await self._channel.close()

    def cut(self) -> None:
        """End it now, without a word."""
        self._wire.cut()

    async def _arrived(self, message: DeliveredMessage) -> None:
        tag, properties = message.delivery_tag, message.header.properties
        if tag is not None:
            topic = message.routing_key or ""
            came = read(properties, message.body, topic=topic, redelivered=bool(message.redelivered))
            token = InFlightMessage(tag, tag, came.message.key)
            self._unacknowledged.add(tag)
            self.in_flight.arrive(Delivery(came.message, came.source, topic, came.redelivered, came.fault, token))
            self._tell()

    def _lost(self, _: object) -> None:
        self._tell()
        if not self._gone.done():
            self._gone.set_result(None)

    async def _cancelled(self, _: object) -> None:
        """The broker does not give us that queue any more: it was deleted, or moved."""
        self._is_cancelled = True
        self._tell()

    async def _in_time(self, doing: Any, until: float) -> Any:
        return await in_time(doing, until, self.cut)


async def open_receiver(
    where: AmqpUrl, group: str, prefetch: int, until: float, tell: Callable[[], None]
) -> AmqpReceiver:
    """Connect, find the queue or make the group's, and begin. Raises wire.TROUBLE or TransportRefused."""
    connection = await connect(where.server, until)
    try:
        queue = where.queue or await _queue_of(connection, where, group, until)
        receiver = AmqpReceiver(connection, await connection.channel(until, confirms=False), tell)
        await receiver.consume(queue, prefetch, until)
    except ChannelNotFoundEntity as exc:
        connection.cut()
        raise TransportRefused(
            f"{where.shown} cannot be received from: {words_of(exc)}; create it, or correct the URL."
        ) from None
    except ChannelAccessRefused as exc:
        connection.cut()
        raise TransportRefused(
            f"{where.shown} cannot be received from: {words_of(exc)}; give the user the right to."
        ) from None
    except BaseException:
        connection.cut()
        raise
    return receiver


async def _queue_of(connection: AmqpConnection, where: AmqpUrl, group: str, until: float) -> str:
    """The name of the group's queue at this exchange. It is made when it is not there, and bound."""
    channel = await connection.channel(until, confirms=False)
    name = f"{where.exchange}.{group}"

    async def ask(doing: Any) -> None:
        await in_time(doing, until, connection.cut)

    await ask(channel.exchange_declare(where.exchange, passive=True))
    try:
        # Somebody may have made it, with other arguments, on purpose.
        await ask(channel.queue_declare(name, passive=True))
    except ChannelNotFoundEntity:
        channel = await connection.channel(until, confirms=False)
        await ask(channel.queue_declare(name, durable=True, arguments=arguments_for(connection.version)))
    for binding in where.bindings or ("#",):
        await ask(channel.queue_bind(name, where.exchange, binding))
    await ask(channel.close())
    return name


def arguments_for(version: tuple[int, int]) -> dict[str, Any]:
    """How a group's queue is made: replicated, on disk, one receiver at a time, and nothing is dropped by itself."""
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    if version >= (4, 0):
        # Else the twenty-first delivery would drop the message.
        arguments["x-delivery-limit"] = -1
    return arguments
