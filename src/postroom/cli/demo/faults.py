"""What the demo's relay sends with, and what is done to it on purpose."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.cli.demo.letterbox import post
from postroom.cli.demo.shop import order_of
from postroom.contracts.transport import (
    Envelope,
    Failed,
    Outcome,
    Publisher,
    Rejected,
    Sent,
    TransportCapabilities,
    Unavailable,
)


def say(line: str) -> None:
    """Tell the director."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the director says. The URLs may hold a password, so they come by stdin, not on the command line."""

    name: str
    store: str = field(repr=False)
    broker: str | None = field(repr=False)
    """Where to; None: into the letterbox."""
    port: int
    run: str
    pace: float = 0.0
    """How many seconds a send takes at least."""
    refused: int | None = None
    """This order is refused by the broker."""
    stuck: int | None = None
    """After this order was confirmed, nothing more is heard of it here."""


class Letters:
    """A publisher into one of the letterbox's paths. See `postroom.contracts.transport` for what each method promises."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="letterbox", durable=False, ordered=True, batches=False)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        (envelope,) = batch
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                status = await post(self._port, self._path, envelope.message)
        except TimeoutError:
            return [Failed("TIMEOUT", "no answer in time", unknown=True)]
        except (OSError, EOFError) as exc:
            return [Unavailable(error=str(exc))]
        return [Sent(status) if status < 300 else Failed(f"HTTP_{status}", f"the answer was {status}")]


class Faulty:
    """A publisher to which things happen on purpose."""

    def __init__(self, inner: Publisher, orders: Callable[[], Orders]) -> None:
        self._inner, self._orders = inner, orders

    @property
    def capabilities(self) -> TransportCapabilities:
        return self._inner.capabilities

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        (envelope,) = batch
        await asyncio.sleep(self._orders().pace)
        number = order_of(envelope.message).number
        if number == self._orders().refused:
            return [Rejected("BAD_ADDRESS", "the broker takes no order without a street")]
        outcomes = await self._inner.publish(batch, timeout=timeout)
        if number == self._orders().stuck and isinstance(outcomes[0], Sent):
            # The broker has it, and the store does not know yet: here it is killed.
            say(f"confirmed {number}")
            await asyncio.Event().wait()
        return outcomes
