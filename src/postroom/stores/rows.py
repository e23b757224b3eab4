"""Messages, errors and dead deliveries in and out of a database's rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from postroom.contracts.inbox import DeadDelivery, DeadQuery, Known, KnownQuery
from postroom.contracts.ops import Record
from postroom.contracts.outbox import ERROR_MAX
from postroom.contracts.transport import Delivery, Identity
from postroom.message import NO_HEADERS, Message, cloudevent, from_cloudevent, id_of
from postroom.text import is_storable, one_line, storable

CODE_MAX = 255
"""How much of a code is kept."""
COLUMN_MAX = 2_048
"""A longer name is cut in its column. MariaDB's `text` holds 64 KiB."""
TEXTS_MAX = 1 << 20
"""If there is more than this of attributes, or of headers, each of them is cut."""
MANY = 256
"""And so many of them are kept."""
SOURCE_MAX = 255
"""So many characters of a source fit into its column, which is part of a key."""

_new, _set = object.__new__, object.__setattr__


# ── messages and errors ───────────────────────────────────────────────────────────────────────────────────────────────


def message_of(
    id_: Any,
    type_: str,
    key: str | None,
    aggregate: str | None,
    topic: str | None,
    body: bytes | None,
    content_type: str,
    headers: str | None,
    correlation_id: str | None,
    causation_id: str | None,
    traceparent: str | None,
    idempotency_key: str | None,
    time: Any,
    expires_at: datetime | None,
) -> Message:
    """The message in these columns, byte for byte as it was written. Every statement selects them in this order; id and
    time are both text, as they travel, or neither is."""
    facts = {
        "type": type_,
        "key": key,
        "body": body,
        "content_type": content_type,
        "id_text": id_,
        "time_text": time,
        "aggregate": aggregate,
        "topic": topic,
        "headers": NO_HEADERS if headers is None else headers_of(headers),
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "traceparent": traceparent,
        "idempotency_key": idempotency_key,
        "not_before": None,
        "expires_at": expires_at,
    }
    if not isinstance(time, str):
        del facts["id_text"], facts["time_text"]
        facts["id"], facts["time"] = id_ if isinstance(id_, UUID) else id_of(id_), time
    # Past __init__, which has nothing to check or to convert here: it would be half of what a claim costs.
    message = _new(Message)
    _set(message, "__dict__", facts)
    return message


def record_of(row: Sequence[Any], time: Callable[[Any], Any] = lambda at: at) -> Record:
    """What `find` selects, in this order; *time* makes moments of its times."""
    seq, status, attempts, lane, created, updated, owner, locked, due, settled, digest, code, error, parked = row[:14]
    *columns, at, expires_at = row[14:]
    return Record(
        seq=seq,
        status=status,
        attempts=attempts,
        lane=lane,
        created_at=time(created),
        updated_at=time(updated),
        message=message_of(*(*columns, time(at), time(expires_at))),
        owner=owner,
        locked_at=time(locked),
        due_at=time(due),
        settled_at=time(settled),
        digest=digest,
        last_error_code=code,
        last_error=error,
        parked=bool(parked),
    )


def headers_of(text: str | None) -> Mapping[str, str]:
    """The headers in this JSON object. What a stranger wrote there that is none is shown as one header, not as an error:
    one unreadable row must not hide the others."""
    if text is None:
        return NO_HEADERS
    try:
        found = json.loads(text)
    except ValueError:
        return {"unreadable-headers": text}
    if not isinstance(found, dict):
        return {"unreadable-headers": text}
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}


def kept_error(error: str) -> str:
    r"""An error's words as they are kept: the beginning, with escapes for what cannot be kept or shown.

    >>> kept_error("not " + chr(0))
    'not \\x00'
    """
    return storable(error[:ERROR_MAX], ERROR_MAX)


def kept_code(code: str) -> str:
    """A code as it is kept: one line, and not long. A handler of the user's own may have chosen it."""
    return one_line(code[:CODE_MAX], CODE_MAX)


# ── the inbox ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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
