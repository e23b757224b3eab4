"""A receiver in a process of its own, to be killed: writes down what it handled, acknowledges it a little later."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from postroom.errors import TransportUnavailable
from postroom.transports.redis_streams import RedisConsumer


async def main(url: str, written: Path) -> None:
    receiver = RedisConsumer(url, group="billing", prefetch=100)
    await receiver.open()
    with written.open("a") as lines:
        while True:
            try:
                deliveries = await receiver.receive(20, wait=timedelta(seconds=1))
            except TransportUnavailable:
                continue
            handled = []
            for delivery in deliveries:
                if not receiver.is_lost(delivery):
                    lines.write(f"{delivery.message.key} {delivery.message.data}\n")
                    handled.append(delivery)
                    await asyncio.sleep(0.0005)
            lines.flush()
            await receiver.ack(handled)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
