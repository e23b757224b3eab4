"""Parked deliveries in and out of a database's rows: shared by the stores' inboxes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from postroom.inbox_store import Parked, ParkedQuery
from postroom.message import cloudevent, from_cloudevent
from postroom.stores._rows import headers_of
from postroom.transport import Delivery

ERROR_MAX = 512


def shortened(error: str) -> str:
    """An error as it is kept: its beginning, with � for what not every database can keep.

    >>> shortened("not " + chr(0))
    'not �'
    """
    # An error may quote what was received. One that could not be written down would fail for ever, and never be parked.
    kept = "".join("�" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in error[:ERROR_MAX])
    return kept if len(error) <= ERROR_MAX else kept[:-1] + "…"


def in_turn(ids: Collection[UUID]) -> list[str]:
    """The ids in an order that is the same for all: two who want several of them wait for each other, never in a circle."""
    return sorted(map(str, ids))


def park_row(consumer: str, delivery: Delivery, attempts: int, code: str, error: str) -> dict[str, Any]:
    """A delivery as `park` writes it."""
    message = delivery.message
    return {
        "consumer": consumer,
        "id": message.id_text,
        "type": message.type,
        "key": message.key,
        "topic": delivery.topic,
        "attributes": json.dumps(cloudevent(message, delivery.source)),
        "headers": json.dumps(dict(message.headers)),
        "body": message.body,
        "attempts": attempts,
        "code": code,
        "error": shortened(error),
    }


def parked_of(row: Sequence[Any], time: Callable[[Any], Any] = lambda at: at) -> Parked:
    """What `parked` selects, in this order; *time* makes moments of its times."""
    consumer, attributes, headers, body, topic, attempts, code, error, dead_at, requeued_at = row
    said: Mapping[str, str] = json.loads(attributes)
    return Parked(
        consumer=consumer,
        message=from_cloudevent(said, None if body is None else bytes(body), headers_of(headers)),
        source=said.get("source", ""),
        topic=topic,
        attempts=attempts,
        code=code,
        error=error,
        dead_at=time(dead_at),
        requeued_at=time(requeued_at),
    )


def query_parameters(query: ParkedQuery) -> dict[str, Any]:
    """A person's query as `parked` and `requeue` take it; ids are None for all."""
    return {
        "consumer": query.consumer,
        "ids": in_turn(query.ids) if query.ids else None,
        "type": query.type,
        "key": query.key,
        "code": query.code,
    }
