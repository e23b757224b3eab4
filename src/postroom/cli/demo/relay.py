"""The relay's process: `python -m postroom.cli.demo.relay`. The director tells it what to do by lines of JSON on stdin.

It is a relay like any other, but for what is done to it on purpose. When stdin ends, the director is gone, and it ends too.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

from postroom.cli.demo.faults import Faulty, Letters, Orders, say
from postroom.cli.demo.letterbox import SOURCE
from postroom.cli.demo.place import TABLES
from postroom.cli.demo.shop import PLACED, TOLD
from postroom.config.values import RelayConfig
from postroom.contracts.transport import Publisher, TransportOptions
from postroom.errors import PostroomError
from postroom.relay import Relay, Route
from postroom.retry import RetryPolicy, Table
from postroom.stores import open_store
from postroom.transports import open_publisher

CONFIG = RelayConfig(
    poll=timedelta(milliseconds=50),
    # One message a batch: slow enough for the eye.
    batch=1,
    concurrency=2,
    lease=timedelta(seconds=4),
    send_timeout=timedelta(seconds=2),
)
BACKOFF_SECONDS = 0.3
MAX_ATTEMPTS = 20
"""No machine is so slow that something dies here by itself."""


class Process:
    """What goes on in this process."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders

    def told(self) -> Orders:
        """The orders as they are now."""
        return self.orders

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Relay until the director ends it."""
        orders = self.orders
        url, retry = orders.store, RetryPolicy(_backoff(orders.pace), MAX_ATTEMPTS)
        hook = Letters(orders.port, f"/{orders.run}/webhook")
        routes = [
            Route(to=Faulty(self._broker(), self.told), pattern=f"*.{PLACED}", retry=retry),
            Route(to=Faulty(hook, self.told), pattern=f"*.{TOLD}", retry=retry, name="webhook"),
        ]
        async with open_store(url, tables=TABLES) as store, open_store(url, tables=TABLES) as heartbeat:
            relay = Relay(store, routes, config=CONFIG, name=orders.name, heartbeat=heartbeat)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.stop)
            listening = asyncio.create_task(self._listen(lines, relay))
            say("ready")
            await relay.run()
            listening.cancel()

    def _broker(self) -> Publisher:
        orders = self.orders
        if orders.broker is not None:
            return open_publisher(orders.broker, TransportOptions(source=SOURCE))
        return Letters(orders.port, f"/{orders.run}/broker")

    async def _listen(self, lines: asyncio.StreamReader, relay: Relay) -> None:
        while line := await lines.readline():
            self.orders = replace(self.orders, **json.loads(line))
        relay.stop()


def _backoff(pace: float) -> Table:
    return Table((timedelta(seconds=max(BACKOFF_SECONDS, 2 * pace)),))


async def _main() -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    if first := await lines.readline():
        said: dict[str, Any] = json.loads(first)
        await Process(Orders(**said)).run(lines)


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except PostroomError as exc:
        say(str(exc))
        sys.exit(1)
