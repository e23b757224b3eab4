"""A broker inside the process: for tests, for demos, and to see what would have been sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.errors import TransportUnavailable
from postroom.message import Message
from postroom.transport import KEY_STOPPED, Envelope, Outcome, Rejected, Sent, TransportCapabilities, Unavailable

TOPIC_DEFAULT = "messages"


@dataclass(slots=True)
class MemoryBroker:
    """Topics, each a list of messages in the order they came."""

    topics: defaultdict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    known: frozenset[str] | None = None
    """The topics it takes messages for; None: any."""
    largest: int | None = None
    """The largest body it takes, in bytes; None: any."""
    away: bool = False
    """It does not answer."""


class MemoryPublisher:
    """See `postroom.transport` for what each method promises."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(
            name="memory", durable=False, ordered=True, batches=True, largest=self._broker.largest
        )

    async def open(self) -> None:
        if self._broker.away:
            raise TransportUnavailable("The broker in memory is away: bring it back with `broker.away = False`.")

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
        topic = envelope.topic or message.topic or TOPIC_DEFAULT
        if broker.away:
            return Unavailable(error="the broker in memory is away")
        if broker.known is not None and topic not in broker.known:
            return Rejected("UNROUTABLE", f"there is no topic {topic!r}")
        size = len(message.body or b"")
        if broker.largest is not None and size > broker.largest:
            return Rejected("PAYLOAD_TOO_LARGE", f"the body has {size} bytes, the broker takes {broker.largest}")
        broker.topics[topic].append(message)
        return Sent(len(broker.topics[topic]) - 1)
