"""What a person does to many messages, done to some at a time: relays go on between, and what is done stays done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

CHUNK = 1_000
"""To so many in one transaction: their lanes are locked for tens of milliseconds."""


class Chunk(NamedTuple):
    """A part of what a person named, by the order of writing."""

    after: int
    """What comes after this seq."""
    top: int
    """And not after this one, the last when it began: what is written meanwhile is not meant."""
    size: int = CHUNK


class Done(NamedTuple):
    """What was done to a chunk."""

    number: int
    last: int | None
    """The last seq that was looked at; None: there are no more."""


def end_of(seqs: list[int], chunk: Chunk) -> int | None:
    """Where the next chunk begins, after one in which these matched; None when that was the last."""
    return max(seqs) if len(seqs) >= chunk.size else None


async def in_chunks(top: int, act: Callable[[Chunk], Awaitable[Done]], told: Callable[[int], None] | None) -> int:
    """Do it chunk by chunk, from the oldest on; to how many. *told* hears how many there are, after each chunk."""
    total, after = 0, 0
    while True:
        done = await act(Chunk(after, top))
        total += done.number
        if told is not None:
            told(total)
        if done.last is None:
            return total
        after = done.last
