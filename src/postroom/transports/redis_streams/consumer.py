"""The receiving side: a receiver of a consumer group. First what others left, then what is new."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportError, TransportRefused, TransportUnavailable
from postroom.transports.redis_streams import server
from postroom.transports.redis_streams.connection import Away, Lost, whole
from postroom.transports.redis_streams.inflight import Entry, InFlight
from postroom.transports.redis_streams.outcomes import code_of, told, why_away
from postroom.transports.redis_streams.receiver import RedisReceiver
from postroom.transports.redis_streams.url import EXAMPLE, read
from postroom.transports.refusals import not_opened

PREFETCH_DEFAULT = 1_000
OPEN_SECONDS = 5.0
AGAIN_SECONDS = 0.1
"""Between two tries to reach a server that is away."""


class RedisConsumer:
    """See `postroom.contracts.transport` for what each method promises.

    ```python
    RedisConsumer("redis://server:6379/orders?hold=30", group="billing")
    ```

    Order per key is kept as long as one receiver of the group reads: a new one waits until the last is known to be dead, or is
    seen alive, before it reads anything new. Several share the messages, in no order among them.
    """

    def __init__(self, url: str, *, group: str = "postroom", prefetch: int = PREFETCH_DEFAULT) -> None:
        self._settings = read(url)
        if self._settings.stream is None:
            raise ConfigError(f"{self._settings.shown} names no stream to receive from; give one, as {EXAMPLE} does.")
        if prefetch < 1:
            raise ConfigError(f"prefetch is {prefetch}; give 1 or more.", prefetch=prefetch)
        self._stream, self._group, self._prefetch = self._settings.stream, group, prefetch
        self._name = self._settings.name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._hand = InFlight()
        self._session: RedisReceiver | None = None
        self._gone: str | None = None
        """Why nothing can be received until a person has looked."""
        self._is_open = False
        self._has_aof = True
        self._changed = asyncio.Event()
        """There is room, or something may be given out."""

    @property
    def capabilities(self) -> ConsumerCapabilities:
        """`durable` is what the server said when it was asked: without an append-only file it keeps nothing."""
        return ConsumerCapabilities(
            name="redis", durable=self._has_aof, ordered=True, shares=True, counts_redeliveries=True
        )

    async def open(self) -> None:
        """Connect, and make the group where it is not there yet: it then has the stream from its beginning."""
        if self._session is not None:
            return
        self._gone, self._is_open = None, True
        try:
            session = await self._connect(OPEN_SECONDS)
        except (Away, Lost) as away:
            raise not_opened(
                away.code,
                f"No Redis to receive from at {self._settings.shown}: {away.error}; start it, or correct the URL.",
            ) from None
        try:
            facts = await server.ask(session.control, OPEN_SECONDS)
            server.check(facts, self._settings)
            self._has_aof = facts.has_aof is not False
            await self._make_group(session)
            await self._begin(session)
        except Lost as lost:
            await session.close()
            raise TransportUnavailable(f"{self._settings.shown} does not answer any more: {lost.error}.") from None
        except BaseException:
            await session.close()
            raise

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        if not self._is_open:
            raise TransportError("The receiver is not open: open it first.")
        until = monotonic() + wait.total_seconds()
        while self._is_open:
            session = self._session or await self._again(until)
            try:
                await self._refill(session, limit)
                if entries := await self._next(session, limit):
                    return [self._delivery(entry) for entry in entries]
            except (Lost, RedisError) as trouble:
                if self._is_open:
                    await self._fail(trouble)
            now = monotonic()
            if now >= until:
                break
            self._changed.clear()
            await session.wait(self._changed, self._waking(session, until, limit) - now)
        return []

    def is_lost(self, delivery: Delivery) -> bool:
        return self._hand.held.get(delivery.token.id) is not delivery.token

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        ids = [delivery.token.id for delivery in deliveries if not self.is_lost(delivery)]
        if not ids or (session := self._session) is None:
            return
        self._hand.drop(ids)
        self._changed.set()
        commands = [["XACK", self._stream, self._group, *ids]]
        if self._settings.delete:
            commands.append(["XDEL", self._stream, *ids])
        with suppress(Lost):  # it comes again
            acknowledged, *_ = await whole(session.control.ask(*commands, seconds=session.seconds))
            if isinstance(acknowledged, RedisError):
                session.trouble = acknowledged

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if not self.is_lost(delivery):
            self._hand.refuse(delivery.token, monotonic() + delay.total_seconds())
            self._changed.set()

    async def terminate(self, delivery: Delivery) -> None:
        await self.ack([delivery])

    async def close(self) -> None:
        self._is_open = False
        self._hand.clear()
        self._changed.set()
        session, self._session = self._session, None
        if session is not None:
            await session.leave()

    # ── from the server into the hand, and out of it ──────────────────────────────────────────────────────────────────

    def _room(self) -> int:
        """How many more may be in the application's hands."""
        return self._prefetch - len(self._hand.held)

    def _wanted(self, limit: int) -> int:
        """How many more are asked for. What waits behind a refused message takes room as well, lest a stuck key draws in
        the whole stream."""
        return min(limit, self._room(), self._prefetch - self._hand.waiting)

    def _waking(self, session: RedisReceiver, until: float, limit: int) -> float:
        """When there may be something to do that nobody tells us of."""
        due = self._hand.next_due(monotonic())
        return min(until, due, session.look_at) if self._wanted(limit) > 0 else min(until, due)

    async def _refill(self, session: RedisReceiver, limit: int) -> None:
        """What others left, and what is new: as much as there is room for."""
        session.check()
        number = self._wanted(limit)
        if number > 0 and monotonic() >= session.look_at:
            await session.look(number)
        if number > 0 and session.is_settled and not self._hand.ready(1, monotonic()):
            session.start_reading(number)

    async def _next(self, session: RedisReceiver, limit: int) -> list[Entry]:
        """What can be given out now, and it is."""
        entries = self._hand.ready(min(limit, self._room()), monotonic())
        if again := [entry.id for entry in entries if entry.was_refused]:
            counted = await session.holds.count(again)
            self._hand.drop(id_ for id_ in again if id_ not in counted)
            entries = [entry for entry in entries if not entry.was_refused or entry.id in counted]
            for entry in entries:
                entry.deliveries = counted.get(entry.id, entry.deliveries)
        self._hand.give(entries)
        return entries

    def _delivery(self, entry: Entry) -> Delivery:
        return Delivery(entry.message, entry.source, self._stream, entry.deliveries - 1, entry.fault, token=entry)

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self, seconds: float) -> RedisReceiver:
        session = RedisReceiver(self._settings, self._group, self._name, self._hand)
        await session.connect(seconds)
        return session

    async def _begin(self, session: RedisReceiver) -> None:
        await session.begin()
        self._session = session

    async def _again(self, until: float) -> RedisReceiver:
        """A new session, as soon as the server is back; TransportUnavailable when that is not in time."""
        if self._gone is not None:
            raise TransportError(self._gone)
        while True:
            session = None
            try:
                session = await self._connect(max(until - monotonic(), 1.0))
                await self._begin(session)
            except BaseException as trouble:
                if session is not None:
                    await session.close()
                if not isinstance(trouble, (Away, Lost, RedisError)):
                    raise
                if monotonic() + AGAIN_SECONDS >= until or _is_group_gone(trouble):
                    await self._fail(trouble)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return session

    async def _fail(self, trouble: Exception) -> NoReturn:
        """What was in hand is lost: it comes again, when the server is back."""
        self._hand.clear()
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        if _is_group_gone(trouble):
            self._gone = (
                f"The group {self._group!r} of {self._settings.shown} is gone: the server lost its data, or somebody deleted "
                "it; look what is missing, then open the receiver again, which reads the stream from its beginning."
            )
            raise TransportError(self._gone) from None
        said = told(trouble) if isinstance(trouble, RedisError) else str(trouble)
        raise TransportUnavailable(f"Nothing can be received from {self._settings.shown}: {said}.") from None

    async def _make_group(self, session: RedisReceiver) -> None:
        command: list[Any] = ["XGROUP", "CREATE", self._stream, self._group, "0"]
        (answer,) = await session.control.ask(command + ["MKSTREAM"] * self._settings.create, seconds=OPEN_SECONDS)
        if not isinstance(answer, RedisError) or code_of(answer) == "BUSYGROUP":
            return
        said = told(answer)
        if code_of(answer) == "WRONGTYPE" or "requires the key to exist" in said:
            raise TransportRefused(
                f"{self._settings.shown} is no stream to receive from ({said}); correct the URL, or create it."
            )
        raise not_opened(
            why_away(answer), f"Nothing can be received from {self._settings.shown}: {said}; correct the URL."
        )


def _is_group_gone(trouble: Exception) -> bool:
    """By one of two words: the second is for who was waiting for a stream that is deleted."""
    if not isinstance(trouble, RedisError):
        return False
    said = told(trouble)
    return said.startswith("NOGROUP") or (said.startswith("UNBLOCKED") and "no longer exists" in said)
