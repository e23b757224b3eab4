"""Dead deliveries in and out of a database's rows: shared by the stores' inboxes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from postroom.contracts.inbox import DeadDelivery, DeadQuery, Known, KnownQuery
from postroom.contracts.transport import Delivery, Identity
from postroom.message import cloudevent, from_cloudevent
from postroom.stores.rows import headers_of
from postroom.stores.sql.texts import kept_code, kept_error
from postroom.text import is_storable, storable

COLUMN_MAX = 2_048
"""A longer name is cut in its column. MariaDB's `text` holds 64 KiB."""
TEXTS_MAX = 1 << 20
"""If there is more than this of attributes, or of headers, each of them is cut."""
SOURCE_MAX = 255
"""So many characters of a source fit into its column, which is part of a key."""
MANY = 256
"""And so many of them are kept."""


def by_source(events: Collection[Identity]) -> list[tuple[str, list[UUID]]]:
    """The ids of each source, in an order of the sources that is the same for all. Nearly always there is one."""
    found: dict[str, list[UUID]] = {}
    for source, id_ in events:
        found.setdefault(source, []).append(id_)
    return sorted(found.items())


def kept_source(source: str) -> str:
    """The source as the tables keep it: one that is too long for its column ends in its hash. Twice is once.

    >>> kept_source("/shop") == "/shop", len(kept_source("x" * 300))
    (True, 255)
    """
    if not is_storable(source):
        source = storable(source, TEXTS_MAX)
    if len(source) <= SOURCE_MAX:
        return source
    return f"{source[: SOURCE_MAX - 65]}#{sha256(source.encode()).hexdigest()}"


def in_turn(ids: Collection[UUID]) -> list[str]:
    """The ids in an order that is the same for all: two who want several of them wait for each other, never in a circle."""
    return sorted(map(str, ids))


def event_row(consumer: str, event: Identity) -> dict[str, str]:
    """Which row it is, as `failed` and `give_up` name it."""
    return {"consumer": consumer, "source": kept_source(event.source), "id": str(event.id)}


def error_row(code: str, error: str) -> dict[str, str]:
    """Why a try failed, as `failed` and `bury` write it."""
    return {"code": kept_code(code), "error": kept_error(error)}


def dead_row(consumer: str, delivery: Delivery, attempts: int, code: str, error: str) -> dict[str, Any]:
    """A delivery as `bury` writes it. Whatever a stranger called it, it can be written: the bytes of its body as they are,
    its names with escapes where no database could keep them."""
    message = delivery.message
    return {
        **event_row(consumer, delivery.identity),
        "type": _column(message.type),
        "key": None if message.key is None else _column(message.key),
        "topic": _column(delivery.topic),
        "attributes": json.dumps(_keepable(cloudevent(message, delivery.source))),
        "headers": json.dumps(_keepable(message.headers)),
        "body": message.body,
        "attempts": attempts,
        **error_row(code, error),
    }


def _column(name: str) -> str:
    """A name as people look for it."""
    return name if len(name) <= COLUMN_MAX and is_storable(name) else storable(name)


def _keepable(texts: Mapping[str, str]) -> dict[str, str]:
    """These texts, all of them as they are where that can be."""
    kept = dict(texts)
    if not is_storable("".join([*texts, *texts.values()])):
        kept = {storable(name, TEXTS_MAX): storable(text, TEXTS_MAX) for name, text in texts.items()}
    # After the escapes: they may be six times as long, and a statement must fit into one packet of the server's.
    if sum(len(name) + len(text) for name, text in kept.items()) <= TEXTS_MAX:
        return kept
    return {storable(name): storable(text) for name, text in list(texts.items())[:MANY]}


def dead_of(row: Sequence[Any], time: Callable[[Any], Any] = lambda at: at) -> DeadDelivery:
    """What `dead` selects, in this order; *time* makes moments of its times."""
    consumer, source, attributes, headers, body, topic, attempts, code, error, dead_at, requeued_at = row
    said: Mapping[str, str] = json.loads(attributes)
    return DeadDelivery(
        consumer=consumer,
        message=from_cloudevent(said, None if body is None else bytes(body), headers_of(headers)),
        source=source,
        topic=topic,
        attempts=attempts,
        code=code,
        error=error,
        dead_at=time(dead_at),
        requeued_at=time(requeued_at),
    )


def known_of(row: Sequence[Any], time: Callable[[Any], Any] = lambda at: at) -> Known:
    """What `known` selects, in this order; *time* makes moments of its times."""
    consumer, source, id_, outcome, attempts, at, code, error = row
    return Known(
        consumer=consumer,
        source=source,
        id=id_ if isinstance(id_, UUID) else UUID(id_),
        outcome=outcome,
        attempts=attempts,
        at=time(at),
        code=code,
        error=error,
    )


def known_parameters(query: KnownQuery) -> dict[str, Any]:
    """A query as `known` takes it, but for its ids and its limit."""
    source = None if query.source is None else kept_source(query.source)
    return {"consumer": query.consumer, "source": source, "outcome": query.outcome}


def query_parameters(query: DeadQuery) -> dict[str, Any]:
    """A person's query as `dead` and `requeue` take it; ids are None for all."""
    return {
        "consumer": query.consumer,
        "ids": in_turn(query.ids) if query.ids else None,
        "type": query.type,
        "key": query.key,
        "code": query.code,
    }
