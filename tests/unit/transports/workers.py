"""Somebody who handles what a consumer receives, and what is true of the result whatever happened meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from postroom.contracts.transport import Consumer, Delivery
from postroom.errors import TransportUnavailable

SECOND = timedelta(seconds=1)


class Worker:
    """Handles what one consumer receives: notes it, acknowledges most, refuses some the first time."""

    def __init__(self, consumer: Consumer, log: list[tuple[str, int]], *, refuses: bool = False) -> None:
        self.consumer, self._log, self._refuses = consumer, log, refuses
        self.handled = 0
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        self._stopping.set()
        await self._task

    async def _work(self) -> None:
        while not self._stopping.is_set():
            with suppress(TransportUnavailable):
                deliveries = await self.consumer.receive(20, wait=SECOND / 10)
                await asyncio.sleep(0.001)
                stopped: set[str | None] = set()
                for delivery in deliveries:
                    await self._handle(delivery, stopped)

    async def _handle(self, delivery: Delivery, stopped: set[str | None]) -> None:
        key, number = delivery.message.key, delivery.message.data
        if self.consumer.is_lost(delivery):
            return
        refuse = self._refuses and not delivery.redelivered and number % 17 == 3
        if key in stopped or refuse:
            stopped.add(key)
            await self.consumer.nack(delivery, delay=SECOND / 100)
            return
        self._log.append((str(key), number))
        self.handled += 1
        await self.consumer.ack([delivery])


def check(log: Sequence[tuple[str, int]], keys: int, each: int, *, twice_at_most: int) -> None:
    """Everything came, every key's first deliveries in order, and little of it twice."""
    assert set(log) == {(f"k{key}", number) for key in range(keys) for number in range(each)}
    order = defaultdict[str, list[int]](list)
    for key, number in log:
        order[key].append(number)
    for key, seen in order.items():
        assert list(dict.fromkeys(seen)) == list(range(each)), f"{key}: {seen}"
    assert len(log) - len(set(log)) <= twice_at_most, "more came again than was in hand"
