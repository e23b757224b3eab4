"""One batch on its way: all keys side by side, the messages of a key one after the other, and what became of each."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Sequence

from aiormq import Channel
from aiormq.exceptions import AMQPError, ChannelClosed, DeliveryError, PublishError

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, Rejected
from postroom.message import Message
from postroom.transports.amqp.connection import LOST, TROUBLE, ProducerConnection
from postroom.transports.amqp.encoding import PERSISTENT, Encoding, Headers, Properties
from postroom.transports.amqp.outcomes import (
    BLOCKED,
    CUT_OFF,
    GONE,
    NACKED,
    NO_TOPIC,
    SENT,
    UNANSWERED,
    closed_by,
    unroutable,
)
from postroom.transports.amqp.url import NAME_MAX, AmqpUrl
from postroom.transports.ordering import KeyOrder

HEADERS_ROOM = 512
"""What a header frame holds beside the headers, at most."""

HEADER_NAME_MAX = 128
"""A longer one would be cut off."""


class Batch:
    """A batch, and its outcomes as far as they are known."""

    def __init__(self, batch: Sequence[Envelope], address: AmqpUrl, encoding: Encoding, until: float) -> None:
        self._batch, self._address, self._encoding, self._until = batch, address, encoding, until
        self._order = KeyOrder([message.key for message, _ in batch])
        self.outcomes = self._order.outcomes
        self._heads: list[int | None] = [*self._order.first]
        """Of each key, and of each message without one, what goes next; None behind the last."""
        self._refused: dict[str, Outcome] = {}
        """What is said of messages with these routing keys, without trying."""
        self._reason: BaseException | None = None
        """Why the broker closed the channel, if it did."""

    async def run(self, producer: ProducerConnection) -> None:
        """Send all of it. What has no answer when the time is up, or the connection is lost, never leaves it later."""
        alone = False
        while self._heads:
            chosen = range(1 if alone else len(self._heads))
            await self._round(producer, chosen)
            is_lost = any(self._heads[number] is not None for number in chosen)
            self._heads = [head for head in self._heads if head is not None]
            if is_lost and (self._reason is None or not self._has_time):
                break
            if is_lost:
                alone = self._learn(producer, is_alone=alone)
                try:
                    await producer.renew(self._until)
                except TROUBLE:
                    break
        if self._heads:
            await self._give_up(producer)

    @property
    def _has_time(self) -> bool:
        return monotonic() < self._until

    async def _round(self, producer: ProducerConnection, chosen: Collection[int]) -> None:
        """Send these keys side by side, until each has ended, or the channel is closed, or the time is up."""
        self._reason = None
        tasks = [asyncio.ensure_future(self._carry(producer, producer.channel, number)) for number in chosen]
        try:
            await asyncio.wait(tasks, timeout=max(self._until - monotonic(), 0))
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
        if late:
            await asyncio.wait(late)
        for task in tasks:
            if not task.cancelled() and (exc := task.exception()) is not None:
                raise exc

    async def _carry(self, producer: ProducerConnection, channel: Channel, number: int) -> None:
        """Send the messages of one key until none is left, or the channel is closed: then the one at its head has no answer."""
        while (place := self._heads[number]) is not None and not channel.is_closed:
            outcome = self._refusal(place, producer)
            if outcome is None:
                self.outcomes[place] = UNANSWERED
                try:
                    outcome = await self._publish(producer, channel, place)
                except LOST as exc:
                    if isinstance(exc, ChannelClosed):
                        self._reason = exc
                    return
            self._heads[number] = self._order.settle(place, outcome)

    async def _publish(self, producer: ProducerConnection, channel: Channel, place: int) -> Outcome:
        """Send one, and wait for what the broker says of it. Raises TROUBLE when it will never say it."""
        message, routing_key = self._batch[place].message, self._routing_key(place)
        body, headers = message.body or b"", self._encoding.headers_of(message)
        if _are_too_large(headers, producer.frame_max - HEADERS_ROOM):
            # Sent all the same, they would cost everybody the connection.
            return Rejected("HEADERS_TOO_LARGE", f"its headers do not fit into a frame of {producer.frame_max} bytes")
        properties = Properties(
            content_type=None if message.body is None else message.content_type,
            headers=headers,
            delivery_mode=PERSISTENT,
            message_id=producer.next_id(),
        )
        exchange = self._address.exchange
        try:
            await channel.basic_publish(
                body, exchange=exchange, routing_key=routing_key, properties=properties, mandatory=True, wait=False
            )
        except PublishError:
            return unroutable(routing_key, exchange, of_the_url=routing_key == self._address.routing_key)
        except DeliveryError:
            return NACKED
        except AMQPError:
            raise
        except (ValueError, TypeError, struct.error) as exc:
            return Rejected("INVALID_MESSAGE", f"it cannot be written as AMQP: {exc}")
        producer.confirmed()
        return SENT

    def _refusal(self, place: int, producer: ProducerConnection) -> Outcome | None:
        """What is to be said of a message without trying it."""
        message, routing_key = self._batch[place].message, self._routing_key(place)
        if not routing_key and not self._address.exchange:
            return NO_TOPIC
        if len(routing_key) * 4 > NAME_MAX and len(routing_key.encode(errors="replace")) > NAME_MAX:
            return Rejected(
                "ROUTING_KEY_TOO_LONG", f"a routing key has at most {NAME_MAX} bytes: {routing_key[:40]!r}…"
            )
        if message.headers and any(len(name.encode(errors="replace")) > HEADER_NAME_MAX for name in message.headers):
            return Rejected("INVALID_MESSAGE", f"the name of a header has more than {HEADER_NAME_MAX} bytes")
        if producer.largest is not None and len(message.body or b"") > producer.largest:
            return self._too_large_for(producer.largest, message)
        return self._refused.get(routing_key)

    def _routing_key(self, place: int) -> str:
        """Its topic; else the URL's; else, at an exchange, its type."""
        message, routed = self._batch[place]
        key = routed or message.topic or self._address.routing_key
        if key is None:
            return message.type if self._address.exchange else ""
        return key

    def _learn(self, producer: ProducerConnection, *, is_alone: bool) -> bool:
        """The broker closed the channel for one of the messages: whose fault it was, as far as that can be told.

        The answer is whether they must go one by one from now on, to find out."""
        closed = closed_by(self._reason)
        heads = [head for head in self._heads if head is not None]
        if closed.of_all:
            for head in heads:
                self._order.settle(head, closed.outcome)
            self._heads = []
        elif closed.larger_than is not None and producer.largest != closed.larger_than:
            producer.largest = closed.larger_than
        elif closed.routing_key is not None and closed.routing_key not in self._refused:
            self._refused[closed.routing_key] = closed.outcome
        elif is_alone:
            self._order.settle(heads[0], closed.outcome)
            del self._heads[0]
        else:
            return True
        return is_alone

    @staticmethod
    def _too_large_for(largest: int, message: Message) -> Outcome:
        size = len(message.body or b"")
        return Rejected("PAYLOAD_TOO_LARGE", f"the body has {size} bytes, the broker takes {largest}")

    async def _give_up(self, producer: ProducerConnection) -> None:
        """The time is up, or the connection is lost. What a broker without memory or disk left unanswered may have arrived;
        but that it was not answered is no message's fault."""
        in_time = self._has_time
        unanswered = CUT_OFF if in_time else BLOCKED if await producer.connection.is_blocked() else UNANSWERED
        for head in (head for head in self._heads if head is not None):
            for place in (head, *self._order.behind(head)):
                if self.outcomes[place] is UNANSWERED:
                    self.outcomes[place] = unanswered
                elif in_time:
                    self.outcomes[place] = GONE
        producer.cut()


def _are_too_large(headers: Headers, room: int) -> bool:
    """Do these headers take more bytes than that?"""
    letters = sum(map(len, headers)) + sum(map(len, headers.values()))
    if 4 * letters + 6 * len(headers) <= room:
        return False
    text = "".join([*headers, *headers.values()])
    return len(text.encode(errors="replace")) + 6 * len(headers) > room
