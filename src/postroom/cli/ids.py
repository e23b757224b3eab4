"""How a person names a message: by its id, the beginning of it, or its key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import click

from postroom.cli.output import printable
from postroom.contracts.ops import OPEN, Query, Status
from postroom.contracts.store import Store

PREFIX_MIN = 4
"""With fewer digits nobody means one message."""
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
    """Return the ids that these texts name, each once. Raises a usage error for one that names no message, or several.

    A whole id is returned as it is, whether or not there is such a message."""
    found: dict[UUID, None] = {}
    for text in texts:
        limits = bounds(text)
        if limits is None:
            raise click.UsageError(f"{printable(text)!r} is not the id of a message, nor the beginning of one.")
        found[await _one_of(store, text, *limits)] = None
    return list(found)


async def _one_of(store: Store, text: str, first: UUID, last: UUID) -> UUID:
    if first == last:
        return first
    found = await store.ops.ids_between(first, last, limit=SHOWN + 1)
    if not found:
        raise click.ClickException(f"No message has an id that begins with {text}; `postroom list` shows what is here.")
    if len(found) > 1:
        more = ", …" if len(found) > SHOWN else ""
        raise click.ClickException(
            f"Several ids begin with {text}: {', '.join(map(str, found[:SHOWN]))}{more}; type more of it."
        )
    return found[0]


async def id_or_head(store: Store, text: str) -> UUID:
    """Return the id that the text names; else of the message that is the head of this key, or the last one it had.

    Raises an error when there is neither."""
    limits = bounds(text)
    if limits is not None and limits[0] == limits[1]:
        return limits[0]
    if (head := await _head(store, text)) is not None:
        return head
    if limits is None:
        raise click.ClickException(f"There is neither a message nor a key {printable(text)!r} in this outbox.")
    return await _one_of(store, text, *limits)


async def _head(store: Store, key: str) -> UUID | None:
    """The oldest message of the key that is dead or open: what the others wait for. Else its newest."""
    waiting = [each for status in HEADS for each in await store.ops.find(Query(key=key, status=status))]
    if waiting:
        return min(waiting, key=lambda record: record.seq).message.id
    newest = await store.ops.find(Query(key=key, limit=1))
    return newest[0].message.id if newest else None
