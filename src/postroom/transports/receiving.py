"""What the receiving side of every transport does in the same way. What is the broker's own is in its `consumer.py`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import Delivery
from postroom.errors import ConfigError
from postroom.transports.inflight import NEVER


class ReceivingConsumer(ABC):
    """A `Consumer` that waits for news. See `postroom.contracts.transport` for what each method promises."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        """Something changed: there may be something to hand out, or to raise."""

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        until = monotonic() + wait.total_seconds()
        await self._begin(until)
        while limit > 0:
            self._news.clear()
            taken = await self._take(limit, until)
            if taken:
                return taken
            now = monotonic()
            if taken is None or now >= until:
                return []
            with suppress(TimeoutError):
                async with asyncio.timeout(min(until, self._next_due(now)) - now):
                    await self._news.wait()
        return []

    async def terminate(self, delivery: Delivery) -> None:
        await self.ack([delivery])

    @abstractmethod
    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `Consumer.ack`."""

    async def _begin(self, until: float) -> None:  # noqa: B027 - most have nothing to do
        """Do what `receive` does once, before it takes anything. Raise what keeps this consumer from receiving."""

    @abstractmethod
    async def _take(self, limit: int, until: float) -> Sequence[Delivery] | None:
        """Return what can be handed out now, without waiting for more; None if it was closed meanwhile.

        Raise TransportUnavailable while the broker is away."""

    def _next_due(self, now: float) -> float:  # noqa: ARG002 - where the broker brings again what was refused, that is news
        """Return when there may be something to hand out although there was no news."""
        return NEVER


def checked_prefetch(prefetch: int) -> int:
    """Return this prefetch, or raise ConfigError if it is less than 1."""
    if prefetch < 1:
        raise ConfigError(f"prefetch is {prefetch}; give 1 or more.", prefetch=prefetch)
    return prefetch
