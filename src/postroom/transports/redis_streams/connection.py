"""One connection to the server, on which every answer is waited for, and nothing is ever sent twice.

redis-py's own clients try again by themselves when a connection breaks: what the server did already, it would do again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import hiredis
from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from postroom.clock import monotonic
from postroom.transports.redis_streams.outcomes import why_away
from postroom.transports.redis_streams.url import RedisUrl

T = TypeVar("T")
Word: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Word]

PROTOCOL = 2
"""RESP2: its replies are lists, of every server and every version of the client."""
FRESH_SECONDS = 1.0
"""So long after an answer the server is taken to be there."""


class Away(Exception):
    """The server cannot be reached, or does not want us. Nothing was asked of it."""

    def __init__(self, code: str, error: str) -> None:
        super().__init__(error)
        self.code, self.error = code, error


class Lost(Exception):
    """No answer came, and none will: what was asked may have been done."""

    def __init__(self, code: str, error: str) -> None:
        super().__init__(error)
        self.code, self.error = code, error


class RedisConnection:
    """One connection. What is asked by several is asked one after the other."""

    def __init__(self, settings: RedisUrl) -> None:
        kind = Connection if settings.tls is None else SSLConnection
        self._connection = kind(**settings.connection, protocol=PROTOCOL, socket_timeout=None)
        self._shown = settings.shown
        self._turn = asyncio.Lock()
        self._answered_at = float("-inf")
        self.is_lost = False
        self._why = ("CONNECTION_LOST", "the connection broke")

    @property
    def is_fresh(self) -> bool:
        """Did the server answer just now?"""
        return monotonic() - self._answered_at <= FRESH_SECONDS

    async def connect(self, seconds: float) -> None:
        """Raises Away."""
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._connection.connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            await self.close()
            raise Away("CONNECT_FAILED", f"no answer from {self._shown}") from None
        except (RedisError, OSError, ValueError) as exc:
            await self.close()
            raise Away(why_away(exc), f"{exc}".rstrip(".")) from None
        except BaseException:
            await self.close()
            raise
        self._answered_at = monotonic()

    async def ask(self, *commands: Command, seconds: float) -> list[Any]:
        """The answers to these commands, which go together; an error that the server tells is one of them. Raises Lost."""
        return await self.ask_packed(b"".join(pack(command) for command in commands), len(commands), seconds)

    async def ask_packed(self, packed: bytes, number: int, seconds: float) -> list[Any]:
        """The same for commands that are packed already."""
        answers: list[Any] = []
        try:
            async with asyncio.timeout(max(seconds, 0.001)), self._turn:
                if self.is_lost:
                    raise Lost(*self._why)
                self.is_lost = True  # until all of it is answered
                await self._connection.send_packed_command([packed], check_health=False)
                while len(answers) < number:
                    answers.append(await self._answer())
                self.is_lost = False
        except TimeoutError:
            await self.close()
            self._why = ("TIMEOUT", "no answer in time")
            raise Lost(*self._why) from None
        except (RedisError, OSError) as exc:
            await self.close()
            self._why = ("CONNECTION_LOST", f"the connection broke: {exc}".rstrip("."))
            raise Lost(*self._why) from None
        self._answered_at = monotonic()
        return answers

    async def is_dirty(self) -> bool:
        """Has the server hung up, or is something there that nobody asked for?"""
        if self.is_lost:
            return True
        # The second is the name that it has before redis-py 8.
        look = getattr(self._connection, "can_read", None) or self._connection.can_read_destructive
        try:
            return bool(await look())
        except (RedisError, OSError, TimeoutError):
            return True

    async def close(self) -> None:
        """Hang up. Twice is fine."""
        self.is_lost = True
        with suppress(RedisError, OSError, TimeoutError):
            await self._connection.disconnect(nowait=True)

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response()
        except (ResponseError, BusyLoadingError, AuthenticationError) as exc:
            # The last two are connection errors to redis-py. The server answered: it did nothing.
            return exc


async def whole(asking: Coroutine[Any, Any, T]) -> T:
    """Its answer. Who is cancelled meanwhile does not break off in the middle, which would cost the connection."""
    task = asyncio.create_task(asking)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return await asyncio.shield(task)


_under_way: set[asyncio.Task[Any]] = set()
"""The event loop does not keep its tasks alive."""


def pack(command: Command) -> bytes:
    """The command as it travels. Raises ValueError for a text that has no UTF-8."""
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub means one word
    return packed
