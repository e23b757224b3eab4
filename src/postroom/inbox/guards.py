"""How a message is known again. The table is the default, and the only one whose promise has no conditions.

- `Table`: a row in the inbox, committed with the effects.
- `BusinessKey`: a unique constraint of your own table. The conflict means that it was done before.
- `RedisGuard`: a key in Redis with a time to live. A cache: see its limits.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from secrets import token_hex
from typing import Any, Protocol

from postroom.contracts.transport import Identity
from postroom.errors import ConfigError, MissingDependency, StoreUnavailable
from postroom.inbox.conflicts import EVERYWHERE, is_conflict
from postroom.inbox.errors import RejectMessage, RetryLater
from postroom.urls import redact

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a guard says of some messages: the others are known."""

    new: frozenset[Identity]
    busy: frozenset[Identity] = frozenset()
    """Somebody handles them now: look again later."""


class Guard(Protocol):
    """Keeps a message from being handled twice."""

    in_transaction: bool
    """Its row is written in the handler's own transaction."""

    def check(self, replay_window: timedelta) -> None:
        """Raise ConfigError where it could not do its work."""

    async def open(self, consumer: str) -> None:
        """Connect, and say what its limits are."""

    async def enter(self, consumer: str, events: Collection[Identity]) -> Entry:
        """Before the transaction: which of them may be handled now."""

    async def leave(self, consumer: str, events: Collection[Identity], *, done: bool) -> None:
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

    async def enter(self, consumer: str, events: Collection[Identity]) -> Entry:  # noqa: ARG002 - the transaction says
        return Entry(frozenset(events))

    async def leave(self, consumer: str, events: Collection[Identity], *, done: bool) -> None:  # noqa: ARG002 - the same
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
    """A unique constraint of your own: `BusinessKey("charges_order_id_key")`. A handler's error that is a violation of exactly
    this constraint means that the effect is there already. Any other error stays an error.

    Write the name as your database says it in the error: PostgreSQL and MariaDB the constraint's name; MySQL the table and
    the name, `charges.order_id`; SQLite the table and its columns, `charges.order_id` or `charges.order_id, charges.part`;
    MongoDB the collection and the index, `charges.order_id_1`.

    It guards what that constraint guards: a handler with a second effect, or one that puts messages, needs the table."""

    constraint: str
    in_transaction: bool = field(default=False, init=False)

    def check(self, replay_window: timedelta) -> None:
        if self.constraint in EVERYWHERE:
            raise ConfigError(
                f"BusinessKey({self.constraint!r}) is the name of a constraint in every table, so it does not say which one: "
                f"write the table too, as in charges.{self.constraint}."
            )
        Outside.check(self, replay_window)

    def is_known(self, error: BaseException) -> bool:
        """Is it a violation of exactly this constraint? What the handler itself calls RetryLater or RejectMessage is not."""
        return not isinstance(error, (RetryLater, RejectMessage)) and is_conflict(error, self.constraint)


_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
_DONE = b"done"
HOLD_DEFAULT = timedelta(minutes=5)


class RedisGuard:
    """`SET NX` with a value that only its owner knows, while the handler works; then a key that lives for `ttl`, which must be
    longer than any message is sent again.

    What it cannot do: the key and the effect are not one commit. A Redis that is away after the commit is waited for, and
    only the marking is repeated. But a process that dies in between leaves a message that is handled again after `hold`; so
    does a handler that takes longer than `hold`, and a Redis that lost the key (a restart without AOF, eviction, failover).
    Use it where that is bearable, or with a handler that is idempotent by itself."""

    in_transaction = False

    def __init__(self, url: str, *, ttl: timedelta, hold: timedelta = HOLD_DEFAULT) -> None:
        self.url, self.ttl, self.hold = url, ttl, hold
        self._value = token_hex(8).encode()
        self._client: Any = None
        self._unmarked: set[str] = set()
        """Keys of what is committed, while Redis has not said that it knows. Only this is repeated, never the handler."""
        self._not_given_back: set[str] = set()
        """Keys of what is not in hand any more, while Redis has not said that it let them go."""

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

    async def enter(self, consumer: str, events: Collection[Identity]) -> Entry:
        names = list(events)
        await self._mark(key for event in names if (key := self._key(consumer, event)) in self._unmarked)
        async with self._client.pipeline(transaction=False) as pipeline:
            for event in names:
                pipeline.set(self._key(consumer, event), self._value, nx=True, px=self.hold, get=True)
            before = dict(zip(names, await self._answers(pipeline), strict=True))
        ours = {event for event, value in before.items() if value == self._value and self._take_back(consumer, event)}
        new = frozenset(event for event, value in before.items() if value is None or event in ours)
        return Entry(new, frozenset(event for event, value in before.items() if value not in (None, _DONE)) - ours)

    async def leave(self, consumer: str, events: Collection[Identity], *, done: bool) -> None:
        keys = [self._key(consumer, event) for event in events]
        if done:
            self._unmarked.update(keys)
            await self._mark(keys)
            return
        self._not_given_back.update(keys)
        async with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.eval(_GIVE_BACK, 1, key, self._value)
            await self._answers(pipeline)
        self._not_given_back.difference_update(keys)

    def is_known(self, error: BaseException) -> bool:  # noqa: ARG002 - an error is an error
        return False

    async def close(self) -> None:
        if self._client is None:
            return
        try:
            await self._mark(self._unmarked)
        except StoreUnavailable as exc:
            what = f"{len(self._unmarked):,} done messages could not be marked, and may be handled again"
            log.error("%s: %s", what, exc)  # noqa: TRY400 - it says all there is to say
        await self._client.aclose()

    async def _mark(self, keys: Iterable[str]) -> None:
        """Have Redis know that these are done: whoever holds them now, and also if it lost them meanwhile."""
        wanted, ttl = list(keys), int(self.ttl.total_seconds() * 1000)
        if not wanted:
            return
        async with self._client.pipeline(transaction=False) as pipeline:
            for key in wanted:
                pipeline.set(key, _DONE, px=ttl)
            await self._answers(pipeline)
        self._unmarked.difference_update(wanted)

    def _take_back(self, consumer: str, event: Identity) -> bool:
        """Is it ours only because it could not be given back? Then it is in hand again."""
        key = self._key(consumer, event)
        is_free = key in self._not_given_back
        self._not_given_back.discard(key)
        return is_free

    async def _answers(self, pipeline: Any) -> list[Any]:
        from redis.exceptions import RedisError

        try:
            answers: list[Any] = await pipeline.execute()
        except (RedisError, OSError) as exc:
            raise StoreUnavailable(f"Redis at {redact(self.url)} cannot be used: {exc}; check that it runs.") from exc
        return answers

    def _key(self, consumer: str, event: Identity) -> str:
        return f"postroom:inbox:{consumer}:{event.id}:{event.source}"
