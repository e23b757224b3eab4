"""A receiver in a process of its own, which can be killed: then nothing is said to the broker."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from postroom.contracts.transport import ConsumerCapabilities, ConsumerOptions, Delivery
from postroom.transports import open_consumer

SPAWN = multiprocessing.get_context("spawn")


class FarAway:
    """Asks a consumer in another process, one question at a time."""

    def __init__(self, url: str, options: ConsumerOptions) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, url, options), daemon=True)

    @property
    def capabilities(self) -> ConsumerCapabilities:
        raise NotImplementedError

    async def open(self) -> None:
        self._process.start()
        await self._ask("open")

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        deliveries: Sequence[Delivery] = await self._ask("receive", limit, wait=wait)
        return deliveries

    def is_lost(self, delivery: Delivery) -> bool:
        raise NotImplementedError

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._ask("ack", deliveries)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        await self._ask("nack", delivery, delay=delay)

    async def terminate(self, delivery: Delivery) -> None:
        await self._ask("terminate", delivery)

    async def close(self) -> None:
        if self._process.is_alive():
            await self._ask("close")
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await asyncio.to_thread(self._process.join)
        self._pipe.close()

    async def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        self._pipe.send((name, arguments, options))
        answer = await asyncio.to_thread(self._pipe.recv)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _serve(pipe: Connection, url: str, options: ConsumerOptions) -> None:
    asyncio.run(_answer(pipe, url, options))


async def _answer(pipe: Connection, url: str, options: ConsumerOptions) -> None:
    consumer = open_consumer(url, options)
    given: list[Delivery] = []
    while True:
        name, arguments, named = await asyncio.to_thread(pipe.recv)
        try:
            match name:
                case "receive":
                    fresh = await consumer.receive(*arguments, **named)
                    numbers = range(len(given), len(given) + len(fresh))
                    given += fresh
                    pipe.send([replace(each, token=number) for number, each in zip(numbers, fresh, strict=True)])
                case "ack":
                    await consumer.ack([given[each.token] for each in arguments[0]])
                    pipe.send(None)
                case "nack" | "terminate":
                    pipe.send(await getattr(consumer, name)(given[arguments[0].token], **named))
                case _:
                    pipe.send(await getattr(consumer, name)())
        except Exception as exc:
            pipe.send(exc)
