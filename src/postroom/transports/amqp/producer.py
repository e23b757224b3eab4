"""A line to the broker: one connection and one channel with confirms, used by one batch at a time."""

from __future__ import annotations

import os
from itertools import count

from aiormq import Channel
from aiormq.exceptions import ChannelAccessRefused

from postroom.clock import monotonic
from postroom.transports.amqp.connection import AmqpConnection, connect, in_time

FRESH_SECONDS = 1.0
"""So long after a confirm the broker is taken to be there: a busy line is not held up by looking."""
NOWHERE = "postroom.is-anybody-there"
"""A routing key that no queue has: what is sent there is confirmed, and dropped."""


class ProducerConnection:
    """Opened by `open_line`. Not for two batches at once."""

    def __init__(self, server: str, connection: AmqpConnection, channel: Channel) -> None:
        self._server, self.wire, self.channel = server, connection, channel
        self.largest: int | None = None
        """The largest body that the broker takes, once it refused one."""
        self._confirmed_at = float("-inf")
        self._may_ask = True
        self._name = os.urandom(8).hex()
        self._numbers = count(1)

    @property
    def frame_max(self) -> int:
        return self.wire.frame_max

    def next_id(self) -> str:
        """An AMQP message id that no other attempt has: aiormq tells by it which message came back."""
        return f"{self._name}-{next(self._numbers)}"

    def confirmed(self) -> None:
        """Something was confirmed just now."""
        self._confirmed_at = monotonic()

    async def look(self, until: float) -> None:
        """Does the broker take and confirm messages now? Raises wire.TROUBLE when not.

        A broker short of memory or disk answers all but those who publish. So a message is published, to nowhere."""
        if not self.channel.is_closed and monotonic() - self._confirmed_at <= FRESH_SECONDS:
            return
        if self.channel.is_closed:
            await self.reopen(until)
        try:
            await in_time(self._ask(), until, self.wire.cut)
        except ChannelAccessRefused:
            # It may write to its own exchange only. That it said so shows that it is there.
            self._may_ask = False
            await self.reopen(until)
        # A broker without room confirms the first message all the same; that it takes no second one it says before.
        await self.wire.unblocked(until)
        self.confirmed()

    async def reopen(self, until: float) -> None:
        """A new channel instead of one that the broker closed while nothing else was under way."""
        self.channel = await self.wire.channel(until)

    async def renew(self, until: float) -> None:
        """A new connection instead of one whose channel was closed under messages: what of these leaves aiormq after the
        broker forgot the channel costs the connection as well."""
        self.wire.cut()
        self.wire = await connect(self._server, until)
        await self.reopen(until)

    async def _ask(self) -> None:
        if self._may_ask:
            await self.channel.basic_publish(b"", routing_key=NOWHERE)
        else:
            await self.channel.basic_qos(prefetch_count=1)

    def cut(self) -> None:
        """End it, and all that is in it, now."""
        self.wire.cut()

    async def close(self) -> None:
        await self.wire.close()


async def open_line(server: str, until: float) -> ProducerConnection:
    """A new line. Raises wire.TROUBLE."""
    connection = await connect(server, until)
    return ProducerConnection(server, connection, await connection.channel(until))
