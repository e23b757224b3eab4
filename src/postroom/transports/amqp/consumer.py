"""The receiving side: one connection at a time, and a new one when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports import GROUP_DEFAULT
from postroom.transports.amqp.connection import TROUBLE
from postroom.transports.amqp.outcomes import not_let_in
from postroom.transports.amqp.receiver import AmqpReceiver, open_receiver
from postroom.transports.amqp.url import read
from postroom.transports.inflight import NEVER
from postroom.transports.receiving import ReceivingConsumer

OPEN_SECONDS = 5.0
PREFETCH_DEFAULT = 500
PREFETCH_MAX = 65_535


class AmqpConsumer(ReceivingConsumer):
    """Receive from RabbitMQ: from the queue of a group at an exchange, or from a queue that is there.

    ```python
    AmqpConsumer("amqp://app:secret@broker/shop?exchange=orders&binding=order.*", group="billing")
    AmqpConsumer("amqp://app:secret@broker/shop?queue=billing")
    ```

    See `postroom.contracts.transport` for what each method promises. A group's queue `orders.billing` is a quorum queue
    that gives its messages to one receiver at a time; others of the group stand by. What is refused stays here until it
    is due: RabbitMQ itself would put it behind all others.
    """

    def __init__(self, url: str, *, group: str | None = None, prefetch: int | None = None) -> None:
        super().__init__()
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
                f"prefetch={prefetch} is not from 1 to {PREFETCH_MAX}; give the number of messages in flight."
            )
        self._group, self._prefetch = group or GROUP_DEFAULT, prefetch or PREFETCH_DEFAULT
        self._receiver: AmqpReceiver | None = None
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
            if self._receiver is None or not self._receiver.is_open:
                self._receiver = await self._connect(monotonic() + OPEN_SECONDS)

    def is_lost(self, delivery: Delivery) -> bool:
        receiver = self._receiver
        return receiver is None or not receiver.is_open or receiver.in_flight.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        if self._receiver is not None and self._receiver.is_open:
            await self._receiver.ack(deliveries)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if self._receiver is not None and self._receiver.is_open:
            self._receiver.in_flight.refuse(delivery, due=monotonic() + delay.total_seconds())
            self._news.set()

    async def close(self) -> None:
        async with self._connecting:
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                await receiver.close()

    async def _take(self, limit: int, until: float) -> Sequence[Delivery]:  # noqa: ARG002 - it connects as fast as it can
        receiver = await self._ready()
        return receiver.in_flight.give(limit, monotonic())

    def _next_due(self, now: float) -> float:
        return NEVER if self._receiver is None else self._receiver.in_flight.next_due(now)

    async def _ready(self) -> AmqpReceiver:
        """The receiver, or a new one where its connection was lost. A queue that is gone may come back, as a broker may."""
        receiver = self._receiver
        if receiver is not None and receiver.is_open:
            return receiver
        async with self._connecting:
            if self._receiver is not None:
                self._receiver.cut()
                self._receiver = None
            try:
                self._receiver = receiver = await self._connect(monotonic() + OPEN_SECONDS)
            except ConfigError as exc:
                raise TransportUnavailable(str(exc)) from None
        return receiver

    async def _connect(self, until: float) -> AmqpReceiver:
        try:
            return await open_receiver(self._address, self._group, self._prefetch, until, self._news.set)
        except TROUBLE as exc:
            raise not_let_in(exc, self._address.shown) from None
