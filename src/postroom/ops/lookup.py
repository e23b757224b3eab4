"""How a person names messages, and which ones a list shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from postroom.contracts.ops import OPEN, Query, Record, Status
from postroom.contracts.store import Store
from postroom.errors import PostroomError

PREFIX_MIN = 4
"""Fewer digits than these do not name one message."""
DIGITS = 32
SHOWN = 3
"""How many of several ids that begin alike are named."""
HEADS: tuple[Status, ...] = ("dead", *OPEN)
"""What can be the head of a key."""


def bounds(text: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last id that begin like this; None when no id does.

    >>> [str(each) for each in bounds("018f2c5e-7c") or ()]
    ['018f2c5e-7c00-0000-0000-000000000000', '018f2c5e-7cff-ffff-ffff-ffffffffffff']
    >>> bounds("order-7") is bounds("12") is None
    True
    """
    digits = text.replace("-", "").lower()
    if not re.fullmatch(rf"[0-9a-f]{{{PREFIX_MIN},{DIGITS}}}", digits, re.ASCII):
        return None
    return UUID(digits.ljust(DIGITS, "0")), UUID(digits.ljust(DIGITS, "f"))


async def ids_of(store: Store, texts: Sequence[str]) -> list[UUID]:
    """Return the ids that these texts name, each once. Raises PostroomError for a text that names no message, or several.

    A whole id is returned as it is, whether or not there is such a message."""
    found: dict[UUID, None] = {}
    for text in texts:
        limits = bounds(text)
        if limits is None:
            raise PostroomError(f"{text!r} is not the id of a message, nor the beginning of one.")
        found[await _one_of(store, text, *limits)] = None
    return list(found)


async def id_or_head(store: Store, text: str) -> UUID:
    """Return the id that the text names; else of the message that is the head of this key, or the last one it had.

    Raises PostroomError when there is neither."""
    limits = bounds(text)
    if limits is not None and limits[0] == limits[1]:
        return limits[0]
    if (head := await _head(store, text)) is not None:
        return head
    if limits is None:
        raise PostroomError(f"There is neither a message nor a key {text!r} in this outbox.")
    return await _one_of(store, text, *limits)


async def _one_of(store: Store, text: str, first: UUID, last: UUID) -> UUID:
    if first == last:
        return first
    found = await store.ops.ids_between(first, last, limit=SHOWN + 1)
    if not found:
        raise PostroomError(f"No message has an id that begins with {text}; `postroom list` shows what is here.")
    if len(found) > 1:
        more = ", …" if len(found) > SHOWN else ""
        named = ", ".join(map(str, found[:SHOWN]))
        raise PostroomError(f"Several ids begin with {text}: {named}{more}; type more of it.")
    return found[0]


async def _head(store: Store, key: str) -> UUID | None:
    """The oldest message of the key that is dead or open: what the others wait for. Else its newest."""
    waiting = [each for status in HEADS for each in await store.ops.find(Query(key=key, status=status))]
    if waiting:
        return min(waiting, key=lambda record: record.seq).message.id
    newest = await store.ops.find(Query(key=key, limit=1))
    return newest[0].message.id if newest else None


@dataclass(frozen=True, slots=True)
class Listing:
    """The newest messages that a query names, oldest first."""

    records: Sequence[Record]
    is_cut: bool = False
    """Are there more than the limit of the query allowed?"""
    total: int | None = None
    """How many there are in all, where the list is cut and that is cheap to know."""


async def newest(store: Store, query: Query) -> Listing:
    """Find the messages that the query names, and whether its limit cut the list."""
    if query.limit is None:
        return Listing(await store.ops.find(query))
    # One more than asked for tells whether there are more.
    records = await store.ops.find(replace(query, limit=query.limit + 1))
    if len(records) <= query.limit:
        return Listing(records)
    if query != Query(status=query.status, limit=query.limit):
        # Counting these would read them all.
        return Listing(records[1:], is_cut=True)
    by_status = (await store.ops.counts()).by_status
    total = sum(by_status.values()) if query.status is None else by_status[query.status]
    return Listing(records[1:], is_cut=True, total=total)
