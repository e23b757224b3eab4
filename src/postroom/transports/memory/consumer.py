"""The receiving side of the broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import InvalidMessage, TransportRefused, TransportUnavailable
from postroom.message import Message, cloudevent, from_cloudevent
from postroom.text import is_storable
from postroom.transports.memory.broker import Group, MemoryBroker, Open

PREFETCH_DEFAULT = 1_000
LOOK_SECONDS = 0.002


class MemoryConsumer:
    """See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, broker: MemoryBroker, topic: str, *, group: str, prefetch: int = PREFETCH_DEFAULT) -> None:
        self._broker, self._topic, self._name, self._prefetch = broker, topic, group, prefetch
        self._held: dict[int, Open] = {}

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return ConsumerCapabilities(name="memory", durable=False, ordered=True, shares=True, counts_redeliveries=True)

    async def open(self) -> None:
        self._check()
        if self._broker.known is not None and self._topic not in self._broker.known:
            raise TransportRefused(
                f"The broker in memory has no topic {self._topic!r}: name another, or add it to `known`."
            )

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        until = monotonic() + wait.total_seconds()
        while True:
            self._check()
            room = min(limit, self._prefetch - len(self._held))
            group = self._group
            if room > 0 and (taken := group.take(room, self)):
                self._held |= dict(taken)
                source, topic = self._broker.source, self._topic
                return [
                    Delivery(message := group.line[place], source, topic, entry.deliveries - 1, _fault(message), place)
                    for place, entry in taken
                ]
            if monotonic() >= until:
                return []
            await asyncio.sleep(LOOK_SECONDS)

    def is_lost(self, delivery: Delivery) -> bool:
        return delivery.token not in self._held

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        still_open = self._group.open
        for delivery in deliveries:
            if self._held.pop(delivery.token, None) is not None:
                del still_open[delivery.token]

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if (entry := self._held.pop(delivery.token, None)) is not None:
            entry.holder, entry.due = None, monotonic() + delay.total_seconds()

    async def terminate(self, delivery: Delivery) -> None:
        await self.ack([delivery])

    async def close(self) -> None:
        self._let_go()

    @property
    def _group(self) -> Group:
        return self._broker.group(self._topic, self._name)

    def _check(self) -> None:
        if self._broker.away:
            self._let_go()
            raise TransportUnavailable("The broker in memory is away: bring it back with `broker.away = False`.")

    def _let_go(self) -> None:
        for entry in self._held.values():
            entry.holder = None
        self._held.clear()


def _fault(message: Message) -> str | None:
    """Why it is none of ours, as a reader of CloudEvents would say."""
    names = [message.type, message.key, message.aggregate, message.correlation_id, message.causation_id]
    names += [message.traceparent, message.idempotency_key, message.content_type]
    if message.headers:
        names += [*message.headers, *message.headers.values()]
    if message.type and is_storable("".join(name for name in names if name)):
        return None
    try:
        from_cloudevent(cloudevent(message, ""), None, message.headers)
    except InvalidMessage as exc:
        return str(exc)
    return None
