"""Messages as documents, for a store that has no columns. Fields that a message does not set are not there.

Where a message stands is told by which of these fields it has, each with an index of its own that holds nothing else:

    line     its lane: it is open and may go
    later    its lane: it is open and not due yet
    behind   its key: it is open and waits behind its key's held head
    parks    its key: it is dead and holds it
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta  # noqa: F401 - UTC is for the example below
from typing import Any

from postroom.message import Message, rfc3339
from postroom.stores.sql.insert import line_hash, text_or_bytes, texts

SEQ = "seq"
"""The one document of the counter's collection."""


def reservation(number: int) -> list[dict[str, Any]]:
    """The update of the counter that reserves so many places, and says by the server's clock when.

    It is not part of the writer's transaction, so writers never wait for each other. Whoever reserves after another's commit
    gets a higher place (R1); places of a transaction that was rolled back stay empty.
    """
    return [{"$set": {"seq": {"$add": ["$seq", number]}, "at": "$$NOW"}}]


def documents(messages: Sequence[Message], counter: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages in the places that were just reserved for them."""
    first = counter["seq"] - len(messages) + 1
    return [
        _document(message, first + number, counter["lanes"], counter["at"]) for number, message in enumerate(messages)
    ]


def _document(message: Message, seq: int, lanes: int, at: datetime) -> dict[str, Any]:
    text = str(message.id)
    lane = line_hash(message.key or text) % lanes
    made: dict[str, Any] = {"_id": text, "seq": seq, "lane": lane, "line": lane, **texts(message)}
    if (body := message.body) is not None:
        name, value = text_or_bytes(body)
        made[name] = value
    # As it travels: a date of MongoDB's would cut it to milliseconds.
    made["time"] = rfc3339(message.time)
    if message.not_before is not None:
        made["due_at"] = not_sooner(message.not_before)
    if message.expires_at is not None:
        made["expires_at"] = message.expires_at
    made["created_at"], made["attempts"] = at, 0
    return made


def not_sooner(moment: datetime) -> datetime:
    """The first millisecond that is not before this moment: MongoDB keeps no smaller ones, and would cut it short.

    >>> not_sooner(datetime(2026, 11, 15, 9, 30, 0, 1, tzinfo=UTC)).microsecond
    1000
    """
    return moment + timedelta(microseconds=-moment.microsecond % 1000)
