"""A receiver as a program: `python -m tests.scenarios.receiver URL GROUP FILE`. The file has a line for all that it handled."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta

from postroom.contracts.transport import Consumer, ConsumerOptions
from postroom.errors import TransportUnavailable
from postroom.transports import open_consumer

AT_ONCE = 10


async def work(consumer: Consumer, file: int, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        with suppress(TransportUnavailable):
            for delivery in await consumer.receive(AT_ONCE, wait=timedelta(seconds=0.2)):
                if not consumer.is_lost(delivery):
                    # One write, at the end of the file: lines of several receivers stand in the order they were handled.
                    os.write(file, f"{delivery.message.key} {delivery.message.data}\n".encode())
                    await consumer.ack([delivery])
                    await asyncio.sleep(0.002)
            continue
        await asyncio.sleep(0.2)


async def main(url: str, group: str, path: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = open_consumer(url, ConsumerOptions(group=group, prefetch=AT_ONCE))
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    await work(consumer, file, stopping)
    await consumer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
