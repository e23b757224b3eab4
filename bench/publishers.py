"""Brokers that misbehave in one way each, and the real ones by their URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroom.transport import KEY_STOPPED, Envelope, Failed, Outcome, Publisher, Unavailable
from postroom.transports import open_transport
from postroom.transports.null import SENT, NullPublisher

HOT = "hot"
FAILED = Failed("TIMEOUT", "this key always fails")
AWAY = Unavailable(error="the broker of this benchmark is always away")
HUNG = Failed("TIMEOUT", "the broker of this benchmark never answers", unknown=True)


class HotKeyFails(NullPublisher):
    """One key fails each time; the others are sent."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:  # noqa: ARG002
        outcomes: list[Outcome] = []
        stopped: Outcome = FAILED
        for envelope in batch:
            if envelope.message.key == HOT:
                outcomes.append(stopped)
                stopped = KEY_STOPPED
            else:
                outcomes.append(SENT)
        return outcomes


class Away(NullPublisher):
    """It is never there."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:  # noqa: ARG002
        return [AWAY] * len(batch)


class Hangs(NullPublisher):
    """It takes all the time there is and then answers nothing."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        await asyncio.sleep(timeout.total_seconds())
        return [HUNG] * len(batch)


def publisher_for(name: str) -> Publisher:
    """The publisher of this name, or of this URL."""
    kinds = {kind.__name__: kind for kind in (HotKeyFails, Away, Hangs)}
    return kinds[name]() if name in kinds else open_transport(name)
