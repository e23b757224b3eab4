"""One batch on its way: chains of messages, one for each key, and what became of each message."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Collection, Sequence

from aiormq import Channel
from aiormq.exceptions import AMQPError, ChannelClosed, DeliveryError, PublishError

from postroom.clock import monotonic
from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Envelope, Outcome, Rejected, Sent
from postroom.message import Message
from postroom.transports.amqp.connection import LOST, TROUBLE
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
from postroom.transports.amqp.producer import ProducerConnection
from postroom.transports.amqp.url import NAME_MAX, AmqpUrl

HEADERS_ROOM = 512
"""What a header frame holds beside the headers, at most."""

HEADER_NAME_MAX = 128
"""A longer one would be cut off."""

Chain = deque[int]
"""The places of messages that go one after the other."""


class Batch:
    """A batch, and its outcomes as far as they are known."""

    def __init__(self, batch: Sequence[Envelope], address: AmqpUrl, binding: Encoding, until: float) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(batch)
        self._batch, self._address, self._binding, self._until = batch, address, binding, until
        self._chains = _chains(batch)
        self._refused: dict[str, Outcome] = {}
        """What is said of messages with these routing keys, without trying."""
        self._reason: BaseException | None = None
        """Why the broker closed the channel, if it did."""

    async def run(self, line: ProducerConnection) -> None:
        """Send all of it. What has no answer when the time is up, or the connection is lost, never leaves the line later."""
        alone = False
        while self._chains:
            chosen = self._chains[:1] if alone else self._chains
            await self._round(line, chosen)
            is_lost = any(chosen)
            self._chains = [chain for chain in self._chains if chain]
            if is_lost and (self._reason is None or not self._has_time):
                break
            if is_lost:
                alone = self._learn(line, is_alone=alone)
                try:
                    await line.renew(self._until)
                except TROUBLE:
                    break
        if self._chains:
            await self._give_up(line)

    @property
    def _has_time(self) -> bool:
        return monotonic() < self._until

    async def _round(self, line: ProducerConnection, chains: Collection[Chain]) -> None:
        """All of these chains at once, until each has ended, or the channel is closed, or the time is up."""
        self._reason = None
        tasks = [asyncio.ensure_future(self._carry(line, line.channel, chain)) for chain in chains]
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

    async def _carry(self, line: ProducerConnection, channel: Channel, chain: Chain) -> None:
        """One chain, until it is empty or the channel is closed. What is at its head then has no answer."""
        while chain and not channel.is_closed:
            place = chain[0]
            outcome = self._refusal(place, line)
            if outcome is None:
                self.outcomes[place] = UNANSWERED
                try:
                    outcome = await self._publish(line, channel, place)
                except LOST as exc:
                    if isinstance(exc, ChannelClosed):
                        self._reason = exc
                    return
            self._settle(chain, outcome)

    async def _publish(self, line: ProducerConnection, channel: Channel, place: int) -> Outcome:
        """Send one, and wait for what the broker says of it. Raises wire.TROUBLE when it will never say it."""
        message, routing_key = self._batch[place].message, self._routing_key(place)
        body, headers = message.body or b"", self._binding.headers_of(message)
        if _are_too_large(headers, line.frame_max - HEADERS_ROOM):
            # Sent all the same, they would cost everybody the connection.
            return Rejected("HEADERS_TOO_LARGE", f"its headers do not fit into a frame of {line.frame_max} bytes")
        properties = Properties(
            content_type=None if message.body is None else message.content_type,
            headers=headers,
            delivery_mode=PERSISTENT,
            message_id=line.next_id(),
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
        line.confirmed()
        return SENT

    def _settle(self, chain: Chain, outcome: Outcome) -> None:
        """The head of this chain has its outcome; when that is no Sent, none behind it goes."""
        self.outcomes[chain.popleft()] = outcome
        if not isinstance(outcome, Sent):
            for place in chain:
                self.outcomes[place] = KEY_STOPPED
            chain.clear()

    def _refusal(self, place: int, line: ProducerConnection) -> Outcome | None:
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
        if line.largest is not None and len(message.body or b"") > line.largest:
            return self._too_large_for(line.largest, message)
        return self._refused.get(routing_key)

    def _routing_key(self, place: int) -> str:
        """Its topic; else the URL's; else, at an exchange, its type."""
        message, routed = self._batch[place]
        key = routed or message.topic or self._address.routing_key
        if key is None:
            return message.type if self._address.exchange else ""
        return key

    def _learn(self, line: ProducerConnection, *, is_alone: bool) -> bool:
        """The broker closed the channel for one of the messages: whose fault it was, as far as that can be told.

        The answer is whether they must go one by one from now on, to find out."""
        closed = closed_by(self._reason)
        if closed.of_all:
            for chain in self._chains:
                self._settle(chain, closed.outcome)
            self._chains = []
        elif closed.larger_than is not None and line.largest != closed.larger_than:
            line.largest = closed.larger_than
        elif closed.routing_key is not None and closed.routing_key not in self._refused:
            self._refused[closed.routing_key] = closed.outcome
        elif is_alone:
            self._settle(self._chains[0], closed.outcome)
        else:
            return True
        self._chains = [chain for chain in self._chains if chain]
        return is_alone

    @staticmethod
    def _too_large_for(largest: int, message: Message) -> Outcome:
        size = len(message.body or b"")
        return Rejected("PAYLOAD_TOO_LARGE", f"the body has {size} bytes, the broker takes {largest}")

    async def _give_up(self, line: ProducerConnection) -> None:
        """The time is up, or the connection is lost. What a broker without memory or disk left unanswered may have arrived;
        but that it was not answered is no message's fault."""
        in_time = self._has_time
        unanswered = CUT_OFF if in_time else BLOCKED if await line.wire.is_blocked() else UNANSWERED
        for chain in self._chains:
            for place in chain:
                if self.outcomes[place] is UNANSWERED:
                    self.outcomes[place] = unanswered
                elif in_time:
                    self.outcomes[place] = GONE
        line.cut()


def _chains(batch: Sequence[Envelope]) -> list[Chain]:
    """The places of each key, in order; each message without a key by itself."""
    chains: list[Chain] = []
    of_key: dict[str, Chain] = {}
    for place, envelope in enumerate(batch):
        key = envelope.message.key
        chain = None if key is None else of_key.get(key)
        if chain is None:
            chain = deque()
            chains.append(chain)
            if key is not None:
                of_key[key] = chain
        chain.append(place)
    return chains


def _are_too_large(headers: Headers, room: int) -> bool:
    """Do these headers take more bytes than that?"""
    letters = sum(map(len, headers)) + sum(map(len, headers.values()))
    if 4 * letters + 6 * len(headers) <= room:
        return False
    text = "".join([*headers, *headers.values()])
    return len(text.encode(errors="replace")) + 6 * len(headers) > room
