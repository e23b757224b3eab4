"""What at the broker weakens the promise: asked in AMQP, and of the management's HTTP interface where the URL names it."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.clock import monotonic
from postroom.transports.amqp.connection import TROUBLE, AmqpConnection, connect
from postroom.transports.amqp.inspection import Inspected, look_at_exchange, look_at_queue
from postroom.transports.amqp.management import NODES_GOOD, Management
from postroom.transports.amqp.outcomes import STEPS, away
from postroom.transports.amqp.url import AmqpUrl, read
from postroom.transports.refusals import not_opened

PATIENCE_SECONDS = 10.0
DELIVERIES_DEFAULT = 20
"""Of a quorum queue that says nothing, from RabbitMQ 4.0 on."""

_RIGHT = "give this user the right to configure it while the doctor runs"
_LIMIT = "drops its oldest messages though they were confirmed: set x-overflow=reject-publish, or no limit"
_DROPS = {
    "max-length": _LIMIT,
    "max-length-bytes": _LIMIT,
    "message-ttl": "drops messages by their age, received or not: declare it without",
    "expires": "deletes the queue when nobody receives for a while: declare it without",
}


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
            f"Exchange {name!r} hands what no queue takes to {other!r}, so a message without a receiver counts as sent: "
            f"take alternate-exchange away, or see that somebody reads what {other!r} is given."
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
            f"Queue {name!r} is no quorum queue, so what is in it is on one node and deliveries are not counted: "
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
            f"Queue {name!r} drops a message that was delivered more than {deliveries} times, as one is whose receivers crash: "
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
