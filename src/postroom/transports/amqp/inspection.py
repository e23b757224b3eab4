"""How an exchange or a queue was made. AMQP has no question for that. But it refuses to declare one again as something else,
says in what it differs, and leaves it as it was: so it is declared as it should be, and what is said noted."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiormq import Channel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from postroom.transports.amqp.connection import AmqpConnection, in_time
from postroom.transports.amqp.outcomes import words_of

ROUNDS_MAX = 16
"""A declaration can differ in so many ways; one is told at a time."""

_DIFFERS = re.compile(
    r"inequivalent arg '([^']+)' for .*but current is (?:the value )?(none|'.*?')(?: of type '\w+')?$", re.DOTALL
)
_BITS = ("durable", "auto_delete", "exclusive", "internal")

Declare = Callable[[Channel, dict[str, Any]], Awaitable[Any]]


@dataclass(slots=True)
class Inspected:
    """What an exchange or a queue is, as far as it was told."""

    settings: dict[str, str] = field(default_factory=dict)
    """What is otherwise than it should be."""
    is_there: bool = True
    may_ask: bool = True


async def look_at_exchange(connection: AmqpConnection, name: str, until: float) -> Inspected:
    """How it differs from a durable topic exchange."""

    async def declare(channel: Channel, wished: dict[str, Any]) -> None:
        await channel.exchange_declare(name, passive=True)
        kind = wished.pop("type")
        bits, arguments = _split(wished)
        await channel.exchange_declare(name, exchange_type=kind, arguments=arguments, **bits)

    return await _look(connection, declare, {"type": "topic", "durable": True}, until)


async def look_at_queue(connection: AmqpConnection, name: str, until: float) -> Inspected:
    """How it differs from a durable quorum queue."""

    async def declare(channel: Channel, wished: dict[str, Any]) -> None:
        await channel.queue_declare(name, passive=True)
        bits, arguments = _split(wished)
        await channel.queue_declare(name, arguments=arguments, **bits)

    return await _look(connection, declare, {"durable": True, "x-queue-type": "quorum"}, until)


async def _look(connection: AmqpConnection, declare: Declare, wished: dict[str, Any], until: float) -> Inspected:
    seen = Inspected()
    for _ in range(ROUNDS_MAX):
        channel = await connection.channel(until, confirms=False)
        try:
            await in_time(declare(channel, dict(wished)), until, connection.cut)
        except ChannelPreconditionFailed as exc:
            differs = _DIFFERS.search(words_of(exc))
            if differs is None:
                break
            name, value = differs[1], differs[2].strip("'")
            seen.settings[name] = value
            wished[name] = _as_given(value)
            continue
        except ChannelLockedResource:
            seen.settings["exclusive"] = "true"
        except ChannelNotFoundEntity:
            seen.is_there = False
        except ChannelAccessRefused:
            seen.may_ask = False
        break
    return seen


def _split(wished: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    bits = {name: wished.pop(name) for name in _BITS if name in wished}
    return bits, {name: value for name, value in wished.items() if value is not None}


def _as_given(said: str) -> Any:
    """A value as it must be given to be the same."""
    words = {"none": None, "true": True, "false": False}
    if said in words:
        return words[said]
    return int(said) if said.lstrip("-").isdecimal() else said
