"""What at the broker weakens the promise: asked in AMQP, and of the management's HTTP interface where the URL names it.

AMQP has no question for how an exchange or a queue was made. But the broker refuses to declare one again as something else,
says in what it differs, and leaves it as it was: so it is declared as it should be, and what is said noted. Over HTTP the
management tells what AMQP does not: the nodes, the policies, and which queues an exchange fills.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from aiormq import Channel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from postroom.clock import monotonic
from postroom.errors import TransportUnavailable
from postroom.transports.amqp.connection import TROUBLE, AmqpConnection, connect, in_time
from postroom.transports.amqp.outcomes import STEPS, away, words_of
from postroom.transports.amqp.url import AmqpUrl, read
from postroom.transports.refusals import not_opened
from postroom.urls import redact

PATIENCE_SECONDS = 10.0
HTTP_SECONDS = 5.0
NODES_GOOD = 3
"""Fewer, and a queue cannot be on a majority that outlives one of them."""
DELIVERIES_DEFAULT = 20
"""Of a quorum queue that says nothing, from RabbitMQ 4.0 on."""

_RIGHT = "give this user the right to configure it while the doctor runs"
_LIMIT = "drops its oldest messages though they were confirmed: set x-overflow=reject-publish, or no limit"
_DROPS = {
    "max-length": _LIMIT,
    "max-length-bytes": _LIMIT,
    "message-ttl": "drops messages by their age, received or not: declare it without",
    "expires": "deletes the queue when it has no receiver for a while: declare it without",
}
ROUNDS_MAX = 16
"""A declaration can differ in so many ways; one is told at a time."""

_DIFFERS = re.compile(
    r"inequivalent arg '([^']+)' for .*but current is (?:the value )?(none|'.*?')(?: of type '\w+')?$", re.DOTALL
)
_BITS = ("durable", "auto_delete", "exclusive", "internal")

Declare = Callable[[Channel, dict[str, Any]], Awaitable[Any]]


async def weaknesses(url: str) -> list[str]:
    """What at this broker weakens the promise, a sentence each with the remedy; nothing when all is well.

    Nodes, policies and the queues behind an exchange are seen only where the URL has `management=http://…:15672`.
    Raises TransportUnavailable or TransportRefused when the broker cannot be asked."""
    where = read(url)
    until = monotonic() + PATIENCE_SECONDS
    try:
        connection = await connect(where.server, until)
        try:
            return await _weaknesses(connection, where, until)
        finally:
            await connection.close()
    except TROUBLE as exc:
        found = away(exc, where.shown)
        sentence = f"The RabbitMQ at {where.shown} cannot be asked: {found.error}; start it, or correct the URL."
        raise not_opened(found.code, sentence) from None


async def _weaknesses(connection: AmqpConnection, where: AmqpUrl, until: float) -> list[str]:
    management = Management(where) if where.management else None
    queues = [where.queue] if where.queue else []
    found: list[str] = []
    if where.exchange:
        seen = await look_at_exchange(connection, where.exchange, until)
        if management is not None and seen.is_there:
            seen.settings |= await management.policy("exchanges", where.exchange)
            queues = await management.queues_of(where.exchange)
            if not queues:
                found.append(
                    f"No queue is bound to exchange {where.exchange!r}, so what is sent there comes back: {STEPS}."
                )
        found += of_exchange(where.exchange, seen)
    for queue in queues:
        seen = await look_at_queue(connection, queue, until)
        if management is not None and seen.is_there:
            seen.settings |= await management.policy("queues", queue)
        found += of_queue(queue, seen, connection.version)
    if management is not None:
        found += of_nodes(await management.nodes())
    return found


def of_exchange(name: str, seen: Inspected) -> list[str]:
    """What is weak about an exchange."""
    if not seen.is_there:
        return [f"There is no exchange {name!r}, so nothing can be sent to it: declare it, durable, of type topic."]
    if not seen.may_ask:
        return [f"We may not ask how exchange {name!r} was made: {_RIGHT}."]
    found = []
    if seen.settings.get("durable") == "false":
        found.append(f"Exchange {name!r} is gone after a restart of the broker: declare it with durable=true.")
    if seen.settings.get("auto_delete") == "true":
        found.append(f"Exchange {name!r} deletes itself with its last binding: declare it with auto_delete=false.")
    if (other := _argument(seen.settings, "alternate-exchange")) is not None:
        found.append(
            f"Exchange {name!r} sends what no queue takes to {other!r}, so a message without a receiver counts as sent: "
            f"remove alternate-exchange, or make sure that {other!r} is read."
        )
    return found


def of_queue(name: str, seen: Inspected, version: tuple[int, int]) -> list[str]:
    """What is weak about a queue at a broker of this version."""
    if not seen.is_there:
        return [f"There is no queue {name!r}: declare it, durable, with x-queue-type=quorum."]
    if not seen.may_ask:
        return [f"We may not ask how queue {name!r} was made: {_RIGHT}."]
    settings, found = seen.settings, []
    if settings.get("exclusive") == "true":
        found.append(f"Queue {name!r} belongs to one connection and ends with it: declare one that is not exclusive.")
    if settings.get("durable") == "false":
        found.append(
            f"Queue {name!r} and all in it is gone after a restart of the broker: declare it with durable=true."
        )
    if settings.get("auto_delete") == "true":
        found.append(f"Queue {name!r} deletes itself with its last receiver: declare it with auto_delete=false.")
    if settings.get("x-queue-type", "quorum") != "quorum":
        found.append(
            f"Queue {name!r} is not a quorum queue, so what is in it is on one node and deliveries are not counted: "
            "declare one with x-queue-type=quorum."
        )
    for limit, what in _DROPS.items():
        value = _argument(settings, limit)
        is_safe = what is _LIMIT and _argument(settings, "overflow") in ("reject-publish", "reject-publish-dlx")
        if value is not None and not is_safe:
            found.append(f"Queue {name!r} has {limit}={value}, which {what}.")
    deliveries = _deliveries(settings, version)
    if deliveries is not None and _argument(settings, "dead-letter-exchange") is None:
        found.append(
            f"Queue {name!r} drops a message that was delivered more than {deliveries} times, because its receivers crash: "
            "declare it without x-delivery-limit, from RabbitMQ 4.0 on with x-delivery-limit=-1."
        )
    return found


def _deliveries(settings: Mapping[str, str], version: tuple[int, int]) -> int | None:
    """After how many deliveries a quorum queue drops a message; None: never."""
    if settings.get("x-queue-type", "quorum") != "quorum":
        return None
    said = _argument(settings, "delivery-limit")
    if said is None:
        return DELIVERIES_DEFAULT if version >= (4, 0) else None
    return int(said) if said.isdecimal() else None


def of_nodes(running: int) -> list[str]:
    """What is weak about a cluster of so many nodes."""
    if running >= NODES_GOOD:
        return []
    nodes = "node" if running == 1 else "nodes"
    what = f"RabbitMQ runs on {running} {nodes}, so a disk that breaks can lose what was confirmed"
    return [f"{what}: run {NODES_GOOD}, with quorum queues."]


def _argument(settings: Mapping[str, str], name: str) -> str | None:
    """What a queue or an exchange is told by this name, when it was declared (as x-…, for most) or by a policy."""
    said = (settings.get(key) for key in (f"x-{name}", name))
    return next((value for value in said if value not in (None, "none")), None)


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


class Management:
    """The management of one broker, at the URL that the address names."""

    def __init__(self, where: AmqpUrl) -> None:
        parts = urlsplit(where.management or "")
        self._shown = redact(where.management or "")
        self._base = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        self._key = base64.b64encode(user.encode()).decode()
        self._vhost = quote(where.vhost, safe="")

    async def nodes(self) -> int:
        """How many nodes of the cluster are running."""
        return sum(bool(node.get("running")) for node in await self._ask("nodes"))

    async def policy(self, kind: str, name: str) -> dict[str, str]:
        """What policies set of this one of the `exchanges` or `queues`, the operator's too. RabbitMQ itself tells it of a
        queue some seconds late, and of an exchange not at all."""
        found: dict[str, str] = {}
        for which in ("policies", "operator-policies"):
            policies = await self._ask(f"{which}/{self._vhost}")
            matching = [each for each in policies if _is_meant(each, kind, name)]
            chosen: dict[str, Any] = max(
                matching, key=lambda each: int(each.get("priority", 0)), default={"definition": {}}
            )
            found |= {str(setting): str(value) for setting, value in chosen["definition"].items()}
        return found

    async def queues_of(self, exchange: str) -> list[str]:
        """The queues that are bound to it."""
        path = f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        bindings = await self._ask(path)
        return sorted({each["destination"] for each in bindings if each["destination_type"] == "queue"})

    async def _ask(self, path: str) -> Any:
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> Any:
        # The scheme was checked when the URL was read.
        request = Request(f"{self._base}/api/{path}", headers={"Authorization": f"Basic {self._key}"})  # noqa: S310
        try:
            with urlopen(request, timeout=HTTP_SECONDS) as answer:  # noqa: S310 - the same
                return json.load(answer)
        except (URLError, OSError, ValueError) as exc:
            raise TransportUnavailable(
                f"RabbitMQ's management does not answer at {self._shown}: {exc}; correct management=…, or leave it out."
            ) from None


def _is_meant(policy: Mapping[str, Any], kind: str, name: str) -> bool:
    to = str(policy.get("apply-to", "all"))
    try:
        return (to == "all" or to.endswith(kind)) and re.search(policy["pattern"], name) is not None
    except re.error:  # Erlang knows patterns that Python does not
        return True
