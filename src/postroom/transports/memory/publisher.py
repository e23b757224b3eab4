"""The sending side of the broker in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from postroom.contracts.transport import (
    KEY_STOPPED,
    Envelope,
    Failed,
    Outcome,
    Rejected,
    Sent,
    TransportCapabilities,
    Unavailable,
)
from postroom.errors import TransportRefused, TransportUnavailable
from postroom.transports.memory.broker import TOPIC_DEFAULT, MemoryBroker


class MemoryPublisher:
    """See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, broker: MemoryBroker, *, topic: str = TOPIC_DEFAULT) -> None:
        self._broker, self._topic = broker, topic

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(
            name="memory", durable=False, ordered=True, batches=True, largest=self._broker.largest, topic=self._topic
        )

    async def open(self) -> None:
        if self._broker.away:
            raise TransportUnavailable("The broker in memory is away: bring it back with `broker.away = False`.")
        if self._broker.known is not None and self._topic not in self._broker.known:
            raise TransportRefused(
                f"The broker in memory has no topic {self._topic!r}: name another, or add it to `known`."
            )

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:  # noqa: ARG002 - it never waits
        outcomes: list[Outcome] = []
        stopped: set[str] = set()
        for envelope in batch:
            key = envelope.message.key
            if key in stopped:
                outcomes.append(KEY_STOPPED)
                continue
            outcomes.append(self._take(envelope))
            if key is not None and not isinstance(outcomes[-1], Sent):
                stopped.add(key)
        return outcomes

    async def close(self) -> None:
        return None

    def _take(self, envelope: Envelope) -> Outcome:
        broker, message = self._broker, envelope.message
        topic = envelope.topic or message.topic or self._topic
        if broker.away:
            return Unavailable(error="the broker in memory is away")
        if broker.full:
            return Unavailable("FULL", "the broker in memory has no room")
        if broker.cancels:
            return Failed("CANCELLED", "the broker in memory let go of it", unknown=True)
        if broker.known is not None and topic not in broker.known:
            of_the_url = not (envelope.topic or message.topic)
            return (Unavailable if of_the_url else Rejected)("UNROUTABLE", f"there is no topic {topic!r}")
        size = len(message.body or b"")
        if broker.largest is not None and size > broker.largest:
            return Rejected("PAYLOAD_TOO_LARGE", f"the body has {size} bytes, the broker takes {broker.largest}")
        broker.topics[topic].append(message)
        return Sent(len(broker.topics[topic]) - 1)
