"""A transport that notes when each message was confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import Envelope, Outcome, Publisher, Sent, TransportCapabilities


class Timed:
    """Passes everything on to another publisher. See `postroom.contracts.transport`."""

    def __init__(self, publisher: Publisher, expected: int) -> None:
        self._publisher, self._expected = publisher, expected
        self.sent: dict[object, float] = {}
        """The moment each message was first confirmed, by its id."""
        self.all = asyncio.Event()
        """Set once as many as expected are."""

    @property
    def capabilities(self) -> TransportCapabilities:
        return self._publisher.capabilities

    async def open(self) -> None:
        await self._publisher.open()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        outcomes = await self._publisher.publish(batch, timeout=timeout)
        now = monotonic()
        for envelope, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Sent):
                self.sent.setdefault(envelope.message.id, now)
        if len(self.sent) >= self._expected:
            self.all.set()
        return outcomes

    async def close(self) -> None:
        await self._publisher.close()
