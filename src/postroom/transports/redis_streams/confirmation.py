"""What the URL wants beside the server's answer: replicas, a disk. Asked behind every chunk, and counted. Pure.

`WAIT` and `WAITAOF` are never errors: they answer how many have it, which may be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from postroom.contracts.transport import Failed
from postroom.transports.redis_streams.connection import Word
from postroom.transports.redis_streams.outcomes import NOT_ON_DISK, short_of, told
from postroom.transports.redis_streams.url import RedisUrl


class Confirmation:
    """The waiting that one URL asks for."""

    def __init__(self, settings: RedisUrl) -> None:
        self._replicas, self._disk = settings.wait, settings.waitaof

    def commands(self, seconds: float) -> list[list[Word]]:
        """To be asked on the wire by which was written, with so much time left. Never 0 milliseconds, which is for ever."""
        milliseconds = max(1, int(seconds * 900))
        waits: list[list[Word]] = []
        if self._replicas:
            waits.append(["WAIT", self._replicas, milliseconds])
        if self._disk:
            waits.append(["WAITAOF", 1, 0, milliseconds])
        return waits

    def missing(self, replies: Sequence[Any]) -> Failed | None:
        """What is short, by the answers to these commands; None when all is where it should be."""
        replies = list(replies)
        if self._replicas:
            replicas = replies.pop(0)
            if isinstance(replicas, RedisError):
                return Failed("NOT_REPLICATED", told(replicas), unknown=True)
            if replicas < self._replicas:
                return short_of(replicas, self._replicas)
        if self._disk:
            disks = replies.pop(0)
            if isinstance(disks, RedisError):
                return Failed("NOT_ON_DISK", told(disks), unknown=True)
            if disks[0] < 1:
                return NOT_ON_DISK
        return None
