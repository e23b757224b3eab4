"""The receiving side: one session at a time, and a new one when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports import GROUP_DEFAULT
from postroom.transports.amqp.connection import TROUBLE
from postroom.transports.amqp.inflight import Token
from postroom.transports.amqp.outcomes import not_let_in
from postroom.transports.amqp.receiver import AmqpReceiver, open_session
from postroom.transports.amqp.url import read

OPEN_SECONDS = 5.0
PREFETCH_DEFAULT = 500
PREFETCH_MAX = 65_535


class AmqpConsumer:
    """Receive from RabbitMQ: from the queue of a group at an exchange, or from a queue that is there.

    ```python
    AmqpConsumer("amqp://app:secret@broker/shop?exchange=orders&binding=order.*", group="billing")
    AmqpConsumer("amqp://app:secret@broker/shop?queue=billing")
    ```

    See `postroom.contracts.transport` for what each method promises. A group's queue `orders.billing` is a quorum queue
    that gives its messages to one receiver at a time; others of the group stand by. What is refused stays in hand until it
    is due: RabbitMQ itself would put it behind all others.
    """

    def __init__(self, url: str, *, group: str | None = None, prefetch: int | None = None) -> None:
        self._address = read(url)
        shown = self._address.shown
        if not self._address.exchange and not self._address.queue:
            raise ConfigError(f"{shown} names nothing to receive from; add ?exchange=… or ?queue=….")
        if self._address.queue and group:
            raise ConfigError(f"{shown} names a queue, which all who receive from it share; leave out the group.")
        if self._address.queue and self._address.bindings:
            raise ConfigError(f"{shown} names a queue as it is; leave out the binding, or name an exchange.")
        if self._address.exchange and self._address.routing_key:
            raise ConfigError(f"{shown} has a routing_key, which is for senders; say binding=… instead.")
        if prefetch is not None and not 1 <= prefetch <= PREFETCH_MAX:
            raise ConfigError(
                f"prefetch={prefetch} is not from 1 to {PREFETCH_MAX}; give the number of messages in hand."
            )
        self._group, self._prefetch = group or GROUP_DEFAULT, prefetch or PREFETCH_DEFAULT
        self._session: AmqpReceiver | None = None
        self._connecting = asyncio.Lock()

    @property
    def capabilities(self) -> ConsumerCapabilities:
        # A queue that somebody else made may give its messages to all who ask, and need not count.
        is_ours = self._address.queue is None
        return ConsumerCapabilities(
            name="amqp", durable=True, ordered=True, shares=not is_ours, counts_redeliveries=is_ours
        )

    async def open(self) -> None:
        async with self._connecting:
            if self._session is None or not self._session.is_open:
                self._session = await self._connect(monotonic() + OPEN_SECONDS)

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        until = monotonic() + wait.total_seconds()
        while True:
            session = await self._ready()
            session.news.clear()
            if taken := session.shelf.take(limit, monotonic()):
                return taken
            now = monotonic()
            if now >= until:
                return []
            due = session.shelf.next_due(now)
            with suppress(TimeoutError):
                await asyncio.wait_for(session.news.wait(), min(until, due or until) - now)

    def is_lost(self, delivery: Delivery) -> bool:
        session, token = self._session, delivery.token
        is_ours = session is not None and session.is_open and isinstance(token, Token) and session.shelf.is_out(token)
        return not is_ours

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        tags = [delivery.token.tag for delivery in deliveries if not self.is_lost(delivery)]
        if tags and self._session is not None:
            await self._session.ack(tags)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if not self.is_lost(delivery) and self._session is not None:
            self._session.shelf.put_back(delivery.token, monotonic() + delay.total_seconds())
            self._session.news.set()

    async def terminate(self, delivery: Delivery) -> None:
        await self.ack([delivery])

    async def close(self) -> None:
        async with self._connecting:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    async def _ready(self) -> AmqpReceiver:
        """The session, or a new one where it was lost. A queue that is gone may come back, as a broker may."""
        session = self._session
        if session is not None and session.is_open:
            return session
        async with self._connecting:
            if self._session is not None:
                self._session.cut()
                self._session = None
            try:
                self._session = session = await self._connect(monotonic() + OPEN_SECONDS)
            except ConfigError as exc:
                raise TransportUnavailable(str(exc)) from None
        return session

    async def _connect(self, until: float) -> AmqpReceiver:
        try:
            return await open_session(self._address, self._group, self._prefetch, until)
        except TROUBLE as exc:
            raise not_let_in(exc, self._address.shown) from None
