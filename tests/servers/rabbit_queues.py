"""Exchanges and queues for one test, and what arrived in them."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

QUORUM = {"x-queue-type": "quorum"}


def fresh_name() -> str:
    return f"test.{os.getpid()}.{secrets.token_hex(5)}"


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[AbstractChannel]:
    """A channel for a moment."""
    connection = aiormq.Connection(url)
    await connection.connect()
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def make_queue(url: str, name: str, arguments: dict[str, Any] = QUORUM, *, durable: bool = True) -> None:
    async with channel_to(url) as channel:
        await channel.queue_declare(name, durable=durable, arguments=arguments)


async def make_exchange(url: str, name: str, kind: str = "topic", *, durable: bool = True, **arguments: Any) -> None:
    async with channel_to(url) as channel:
        await channel.exchange_declare(name, exchange_type=kind, durable=durable, arguments=arguments)


async def bind(url: str, queue: str, exchange: str, routing_key: str = "#") -> None:
    async with channel_to(url) as channel:
        await channel.queue_bind(queue, exchange, routing_key)


async def remove(url: str, *names: str) -> None:
    """The queues and exchanges of these names, if they are there."""
    async with channel_to(url) as channel:
        for name in names:
            await channel.queue_delete(name)
            await channel.exchange_delete(name)


async def everything_in(url: str, queue: str) -> Sequence[DeliveredMessage]:
    """All that the queue holds now, in its order. It stays there."""
    found: list[DeliveredMessage] = []
    async with channel_to(url) as channel:
        while (message := await channel.basic_get(queue)).delivery_tag:
            found.append(message)
    return found
