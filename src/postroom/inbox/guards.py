"""How a message is known again. The table is the default, and the only one whose promise has no conditions.

- `Table`: a row in the inbox, committed with the effects.
- `BusinessKey`: a unique constraint of your own table. The conflict means that it was done before.
- `RedisGuard`: a key in Redis with a time to live. A cache: see its limits.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from secrets import token_hex
from typing import Any, Protocol
from uuid import UUID

from postroom.errors import ConfigError, MissingDependency, StoreUnavailable
from postroom.urls import redact

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a guard says of some messages: the others are known."""

    new: frozenset[UUID]
    busy: frozenset[UUID] = frozenset()
    """Somebody handles them now: look again later."""


class Guard(Protocol):
    """Keeps a message from being handled twice."""

    in_transaction: bool
    """Its row is written in the handler's own transaction."""

    def check(self, replay_window: timedelta) -> None:
        """Raise ConfigError where it could not do its work."""

    async def open(self, consumer: str) -> None:
        """Connect, and say what its limits are."""

    async def enter(self, consumer: str, ids: Collection[UUID]) -> Entry:
        """Before the transaction: which of them may be handled now."""

    async def leave(self, consumer: str, ids: Collection[UUID], *, done: bool) -> None:
        """After it: they are done, or not."""

    def is_known(self, error: BaseException) -> bool:
        """Does this error of the handler say that the message was handled before?"""

    async def close(self) -> None:
        """Let go."""


@dataclass(slots=True)
class Outside:
    """A guard that does nothing outside the transaction."""

    def check(self, replay_window: timedelta) -> None:  # noqa: ARG002 - it forgets nothing by itself
        return None

    async def open(self, consumer: str) -> None:  # noqa: ARG002 - there is nothing to connect to
        return None

    async def enter(self, consumer: str, ids: Collection[UUID]) -> Entry:  # noqa: ARG002 - the transaction says
        return Entry(frozenset(ids))

    async def leave(self, consumer: str, ids: Collection[UUID], *, done: bool) -> None:  # noqa: ARG002 - the same
        return None

    def is_known(self, error: BaseException) -> bool:  # noqa: ARG002 - an error is an error
        return False

    async def close(self) -> None:
        return None


@dataclass(slots=True)
class Table(Outside):
    """The inbox's own table."""

    in_transaction: bool = field(default=True, init=False)


@dataclass(slots=True)
class BusinessKey(Outside):
    """A unique constraint of your own: `BusinessKey("charges_order_id_key")`. A handler's error that names it means that
    the effect is there already. SQLite names the columns instead: `BusinessKey("charges.order_id")`.

    It guards what that constraint guards: a handler with a second effect, or one that puts messages, needs the table."""

    constraint: str
    in_transaction: bool = field(default=False, init=False)

    def is_known(self, error: BaseException) -> bool:
        """It is a violation of this constraint, as any driver, or SQLAlchemy or Django around it, says it."""
        seen: BaseException | None = error
        while seen is not None:
            if (
                "Integrity" in type(seen).__name__
                or "Unique" in type(seen).__name__
                or "Duplicate" in type(seen).__name__
            ):
                name = getattr(getattr(seen, "diag", None), "constraint_name", None)
                if name == self.constraint or self.constraint in str(seen):
                    return True
            seen = seen.__cause__
        return False


_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
_KEEP = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end return 0"
_DONE = b"done"
HOLD_DEFAULT = timedelta(minutes=5)


class RedisGuard:
    """`SET NX` with a value that only its owner knows, while the handler works; then a key that lives for `ttl`, which must be
    longer than any message is sent again.

    What it cannot do: the key and the effect are not one commit. A process that dies between them leaves a message that is
    handled again after `hold`; so does a handler that takes longer than `hold`, and a Redis that lost the key (a restart
    without AOF, eviction, failover). Use it where that is bearable, or with a handler that is idempotent by itself."""

    in_transaction = False

    def __init__(self, url: str, *, ttl: timedelta, hold: timedelta = HOLD_DEFAULT) -> None:
        self.url, self.ttl, self.hold = url, ttl, hold
        self._value = token_hex(8).encode()
        self._client: Any = None

    def check(self, replay_window: timedelta) -> None:
        if self.ttl <= replay_window:
            raise ConfigError(
                f"The Redis guard forgets after {self.ttl}, but messages may be sent again for {replay_window}: "
                "make its ttl longer than that."
            )

    async def open(self, consumer: str) -> None:
        try:
            from redis.asyncio import Redis
        except ImportError as exc:
            raise MissingDependency(
                "The Redis guard needs redis, which is not installed: run `pip install 'postroom[redis]'`.",
                extra="redis",
            ) from exc
        self._client = Redis.from_url(self.url)
        log.warning(
            "The inbox %s is guarded by Redis at %s: a key that Redis loses (restart without AOF, eviction, failover) means "
            "a message handled twice. The table guards without conditions.",
            consumer,
            redact(self.url),
        )

    async def enter(self, consumer: str, ids: Collection[UUID]) -> Entry:
        names = list(ids)
        async with self._client.pipeline(transaction=False) as pipeline:
            for id_ in names:
                pipeline.set(self._key(consumer, id_), self._value, nx=True, px=self.hold, get=True)
            before = dict(zip(names, await self._answers(pipeline), strict=True))
        new = frozenset(id_ for id_, value in before.items() if value is None)
        return Entry(new, frozenset(id_ for id_, value in before.items() if value not in (None, _DONE)))

    async def leave(self, consumer: str, ids: Collection[UUID], *, done: bool) -> None:
        ttl = int(self.ttl.total_seconds() * 1000)
        async with self._client.pipeline(transaction=False) as pipeline:
            for id_ in ids:
                key = self._key(consumer, id_)
                if done:
                    pipeline.eval(_KEEP, 1, key, self._value, _DONE, ttl)
                else:
                    pipeline.eval(_GIVE_BACK, 1, key, self._value)
            await self._answers(pipeline)

    def is_known(self, error: BaseException) -> bool:  # noqa: ARG002 - an error is an error
        return False

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _answers(self, pipeline: Any) -> list[Any]:
        from redis.exceptions import RedisError

        try:
            answers: list[Any] = await pipeline.execute()
        except (RedisError, OSError) as exc:
            raise StoreUnavailable(f"Redis at {redact(self.url)} cannot be used: {exc}; check that it runs.") from exc
        return answers

    def _key(self, consumer: str, id_: UUID) -> str:
        return f"postroom:inbox:{consumer}:{id_}"
