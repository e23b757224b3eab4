"""The receiving side: a receiver of a consumer group. First what others left, then what is new."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportError, TransportRefused, TransportUnavailable
from postroom.transports.inflight import InFlight
from postroom.transports.receiving import ReceivingConsumer, checked_prefetch
from postroom.transports.redis_streams import server
from postroom.transports.redis_streams.connection import Away, Lost, whole
from postroom.transports.redis_streams.outcomes import code_of, told, why_away
from postroom.transports.redis_streams.receiver import RedisReceiver
from postroom.transports.redis_streams.url import EXAMPLE, read
from postroom.transports.refusals import not_opened

PREFETCH_DEFAULT = 1_000
OPEN_SECONDS = 5.0
AGAIN_SECONDS = 0.1
"""Between two tries to reach a server that is away."""


class RedisConsumer(ReceivingConsumer):
    """See `postroom.contracts.transport` for what each method promises.

    ```python
    RedisConsumer("redis://server:6379/orders?hold=30", group="billing")
    ```

    Order per key is kept as long as one receiver of the group reads: a new one waits until the last is known to be dead, or is
    seen alive, before it reads anything new. Several share the messages, in no order among them.
    """

    def __init__(self, url: str, *, group: str = "postroom", prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__()
        self._settings = read(url)
        if self._settings.stream is None:
            raise ConfigError(f"{self._settings.shown} names no stream to receive from; give one, as {EXAMPLE} does.")
        self._stream, self._group, self._prefetch = self._settings.stream, group, checked_prefetch(prefetch)
        self._name = self._settings.name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._in_flight = InFlight[bytes](prefetch)
        """By their places in the stream."""
        self._receiver: RedisReceiver | None = None
        self._gone: str | None = None
        """Why nothing can be received until a person has looked."""
        self._is_open = False
        self._has_aof = True

    @property
    def capabilities(self) -> ConsumerCapabilities:
        """`durable` is what the server said when it was asked: without an append-only file it keeps nothing."""
        return ConsumerCapabilities(
            name="redis", durable=self._has_aof, ordered=True, shares=True, counts_redeliveries=True
        )

    async def open(self) -> None:
        """Connect, and make the group where it is not there yet: it then has the stream from its beginning."""
        if self._receiver is not None:
            return
        self._gone, self._is_open = None, True
        try:
            receiver = await self._connect(OPEN_SECONDS)
        except (Away, Lost) as away:
            raise not_opened(
                away.code,
                f"No Redis to receive from at {self._settings.shown}: {away.error}; start it, or correct the URL.",
            ) from None
        try:
            facts = await server.ask(receiver.control, OPEN_SECONDS)
            server.check(facts, self._settings)
            self._has_aof = facts.has_aof is not False
            await self._make_group(receiver)
            await self._start(receiver)
        except Lost as lost:
            await receiver.close()
            raise TransportUnavailable(f"{self._settings.shown} does not answer any more: {lost.error}.") from None
        except BaseException:
            await receiver.close()
            raise

    def is_lost(self, delivery: Delivery) -> bool:
        return self._in_flight.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        receiver = self._receiver
        if receiver is None or not (settled := self._in_flight.settle(deliveries)):
            return
        self._news.set()
        ids = [delivery.token.receipt for delivery in settled]
        commands = [["XACK", self._stream, self._group, *ids]]
        if self._settings.delete:
            commands.append(["XDEL", self._stream, *ids])
        with suppress(Lost):  # it comes again
            acknowledged, *_ = await whole(receiver.control.ask(*commands, seconds=receiver.seconds))
            if isinstance(acknowledged, RedisError):
                receiver.trouble = acknowledged

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if self._in_flight.refuse(delivery, due=monotonic() + delay.total_seconds()):
            self._news.set()

    async def close(self) -> None:
        self._is_open = False
        self._in_flight.lose_all()
        self._news.set()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.leave()

    # ── from the server, and out again ────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, until: float) -> None:  # noqa: ARG002 - it waits for nothing
        if not self._is_open:
            raise TransportError("The receiver is not open: open it first.")

    async def _take(self, limit: int, until: float) -> Sequence[Delivery] | None:
        """First what others left, then what is here; if that is nothing, what is new is asked for."""
        if not self._is_open:
            return None
        receiver = self._receiver or await self._again(until)
        try:
            receiver.check()
            number = self._wanted(limit)
            if number > 0 and monotonic() >= receiver.look_at:
                await receiver.look(number)
            if given := await self._give(receiver, limit):
                return given
            if number > 0 and receiver.is_settled:
                receiver.start_reading(number)
        except (Lost, RedisError) as trouble:
            if self._is_open:
                await self._fail(trouble)
        return []

    def _next_due(self, now: float) -> float:
        due = self._in_flight.next_due(now)
        return due if self._receiver is None or self._wanted(1) <= 0 else min(due, self._receiver.look_at)

    def _wanted(self, limit: int) -> int:
        """Return how many more are asked for. What waits behind a refused message takes room as well, lest a stuck key draws
        in the whole stream."""
        return min(limit, self._prefetch - self._in_flight.given, self._prefetch - self._in_flight.waiting)

    async def _give(self, receiver: RedisReceiver, limit: int) -> list[Delivery]:
        """Return what can be given now. The server counts what was refused, and says whether it is still ours."""
        given = self._in_flight.give(limit, monotonic())
        again = [delivery for delivery in given if delivery.token.turn]
        if not again:
            return given
        try:
            counted = await receiver.pending.count([delivery.token.receipt for delivery in again])
        except BaseException:
            self._in_flight.take_back(given)
            raise
        self._in_flight.lost(delivery for delivery in again if delivery.token.receipt not in counted)
        return [
            replace(delivery, redelivered=counted[delivery.token.receipt] - 1) if delivery.token.turn else delivery
            for delivery in given
            if not self._in_flight.is_lost(delivery)
        ]

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self, seconds: float) -> RedisReceiver:
        receiver = RedisReceiver(self._settings, self._group, self._name, self._in_flight, self._news.set)
        await receiver.connect(seconds)
        return receiver

    async def _start(self, receiver: RedisReceiver) -> None:
        self._in_flight.lose_all()  # what came while the last one left was given back with all else
        await receiver.begin()
        self._receiver = receiver

    async def _again(self, until: float) -> RedisReceiver:
        """A new receiver, as soon as the server is back; TransportUnavailable when that is not in time."""
        if self._gone is not None:
            raise TransportError(self._gone)
        while True:
            receiver = None
            try:
                receiver = await self._connect(max(until - monotonic(), 1.0))
                await self._start(receiver)
            except BaseException as trouble:
                if receiver is not None:
                    await receiver.close()
                if not isinstance(trouble, (Away, Lost, RedisError)):
                    raise
                if monotonic() + AGAIN_SECONDS >= until or _is_group_gone(trouble):
                    await self._fail(trouble)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return receiver

    async def _fail(self, trouble: Exception) -> NoReturn:
        """What was in flight is lost: it comes again, when the server is back."""
        self._in_flight.lose_all()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.close()
        if _is_group_gone(trouble):
            self._gone = (
                f"The group {self._group!r} of {self._settings.shown} is gone: the server lost its data, or it was deleted; "
                "check what is missing, then open the receiver again, which reads the stream from its beginning."
            )
            raise TransportError(self._gone) from None
        said = told(trouble) if isinstance(trouble, RedisError) else str(trouble)
        raise TransportUnavailable(f"Nothing can be received from {self._settings.shown}: {said}.") from None

    async def _make_group(self, receiver: RedisReceiver) -> None:
        command: list[Any] = ["XGROUP", "CREATE", self._stream, self._group, "0"]
        (answer,) = await receiver.control.ask(command + ["MKSTREAM"] * self._settings.create, seconds=OPEN_SECONDS)
        if not isinstance(answer, RedisError) or code_of(answer) == "BUSYGROUP":
            return
        said = told(answer)
        if code_of(answer) == "WRONGTYPE" or "requires the key to exist" in said:
            raise TransportRefused(
                f"{self._settings.shown} is not a stream to receive from ({said}); correct the URL, or create it."
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
