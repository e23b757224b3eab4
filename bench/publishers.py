"""Brokers that misbehave in one way each, and the real ones by their URL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroom.contracts.transport import KEY_STOPPED, Envelope, Failed, Outcome, Publisher, Unavailable
from postroom.transports import open_publisher
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


class Blocked(NullPublisher):
    """Nothing gets through it."""

    asked = 0
    """How many messages it was given: a relay that gave it none was not measured."""


class Away(Blocked):
    """It is never there."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:  # noqa: ARG002
        self.asked += len(batch)
        return [AWAY] * len(batch)


class Hangs(Blocked):
    """It takes all the time there is and then answers nothing."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        self.asked += len(batch)
        await asyncio.sleep(timeout.total_seconds())
        return [HUNG] * len(batch)


def publisher_for(name: str) -> Publisher:
    """The publisher of this URL, or the one whose hot key fails."""
    return HotKeyFails() if name == HotKeyFails.__name__ else open_publisher(name)
