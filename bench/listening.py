"""A relay to a function that notes when it is called."""

from __future__ import annotations

import asyncio
import logging
import time

from postroom.config.values import RelayConfig
from postroom.message import Message
from postroom.relay import Relay, Route
from postroom.stores import open_store
from postroom.transports.local import LocalPublisher

PATIENCE_SECONDS = 300


def listen(url: str, number: int) -> list[float]:
    """Relay so many messages; by their own number, the moment each reached the function first."""
    logging.disable(logging.WARNING)
    return asyncio.run(_listen(url, number))


async def _listen(url: str, number: int) -> list[float]:
    moments: dict[int, float] = {}
    loop = asyncio.get_running_loop()

    def handle(message: Message) -> None:
        moments.setdefault(message.data["number"], time.monotonic())
        if len(moments) == number:
            loop.call_soon_threadsafe(relay.stop)

    async with open_store(url) as store, open_store(url) as heartbeat:
        relay = Relay(store, [Route(to=LocalPublisher(handle))], config=RelayConfig(), heartbeat=heartbeat)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await relay.run()
    return [moments[each] for each in range(number)]
