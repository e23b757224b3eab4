"""The receiving side of the broker in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import InvalidMessage, TransportRefused, TransportUnavailable
from postroom.message import Message, cloudevent, from_cloudevent
from postroom.text import is_storable
from postroom.transports.inflight import ALWAYS, InFlightMessage
from postroom.transports.memory.broker import Group, MemoryBroker
from postroom.transports.receiving import ReceivingConsumer

PREFETCH_DEFAULT = 1_000
LOOK_SECONDS = 0.002


class MemoryConsumer(ReceivingConsumer):
    """See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, broker: MemoryBroker, topic: str, *, group: str, prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__()
        self._broker, self._topic, self._name, self._prefetch = broker, topic, group, prefetch
        self._held: dict[int, Delivery] = {}
        """What this receiver has of what its group has in flight, by place."""

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return ConsumerCapabilities(name="memory", durable=False, ordered=True, shares=True, counts_redeliveries=True)

    async def open(self) -> None:
        self._check()
        if self._broker.known is not None and self._topic not in self._broker.known:
            raise TransportRefused(
                f"The broker in memory has no topic {self._topic!r}: name another, or add it to `known`."
            )

    def is_lost(self, delivery: Delivery) -> bool:
        held = self._held.get(delivery.token.position)
        return held is None or held.token is not delivery.token

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._group.in_flight.settle([delivery for delivery in deliveries if self._let_go(delivery)])

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if self._let_go(delivery):
            self._group.in_flight.refuse(delivery, due=monotonic() + delay.total_seconds())

    async def close(self) -> None:
        self._give_all_back()

    async def _take(self, limit: int, until: float) -> Sequence[Delivery]:  # noqa: ARG002 - it waits for nothing
        self._check()
        given = self._group.give(min(limit, self._prefetch - len(self._held)), monotonic(), self._delivery_of)
        self._held.update((delivery.token.position, delivery) for delivery in given)
        return given

    def _next_due(self, now: float) -> float:
        return now + LOOK_SECONDS

    @property
    def _group(self) -> Group:
        return self._broker.group(self._topic, self._name)

    def _check(self) -> None:
        if self._broker.away:
            self._give_all_back()
            raise TransportUnavailable("The broker in memory is away: bring it back with `broker.away = False`.")

    def _delivery_of(self, place: int) -> Delivery:
        message = self._group.line[place]
        token = InFlightMessage(place, None, message.key)
        return Delivery(message, self._broker.source, self._topic, 0, _fault(message), token)

    def _let_go(self, delivery: Delivery) -> bool:
        """Return whether it was given to this receiver. It is not, from now on."""
        return not self.is_lost(delivery) and self._held.pop(delivery.token.position) is not None

    def _give_all_back(self) -> None:
        for delivery in self._held.values():
            self._group.in_flight.refuse(delivery, due=ALWAYS)
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
