"""What the connections of every server are called, and a transaction of a store's own as a handle that `Outbox.put` takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self, TypeAlias

from postroom.config.tables import TableNames
from postroom.errors import NotInTransaction
from postroom.message import Message

OURS = "postroom"
"""Where no relay has a name of its own."""
NAME_MAX = 63
"""How much of a name every server takes."""

Write: TypeAlias = Callable[[Sequence[Message], TableNames], Awaitable[None]]
"""Writes messages in the transaction that is open."""


def shown_name(name: str | None) -> str:
    """What a server is told that we are called.

    >>> shown_name(None), shown_name("billing-1")
    ('postroom', 'postroom:billing-1')
    """
    said = OURS if name is None else f"{OURS}:{name}"
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in said)[:NAME_MAX]


@dataclass(slots=True)
class OwnTransaction:
    """What is put through it is there once the transaction commits."""

    _write: Write
    is_open: bool = True

    def postroom_handle(self) -> Self:
        return self

    def check(self) -> None:
        """Raise NotInTransaction when the transaction is over."""
        if not self.is_open:
            raise NotInTransaction(
                "The store's transaction is over: open a new one with `async with store.outbox.transaction()`."
            )

    async def write(self, messages: Sequence[Message], tables: TableNames) -> None:
        """Write the messages."""
        self.check()
        await self._write(messages, tables)


@asynccontextmanager
async def handle_of(write: Write) -> AsyncIterator[OwnTransaction]:
    """Yield a handle for an open transaction, and close the handle when the block ends."""
    handle = OwnTransaction(write)
    try:
        yield handle
    finally:
        handle.is_open = False
