"""The sending side: each batch on a wire of its own, chunk after chunk."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transport import NOT_STARTED, Envelope, Failed, Outcome, TransportCapabilities, Unavailable
from postroom.transports.redis_streams import answers, server, settings
from postroom.transports.redis_streams.binding import Binding
from postroom.transports.redis_streams.script import Script
from postroom.transports.redis_streams.sending import UNWRITABLE, Chunk, Sending
from postroom.transports.redis_streams.wire import Away, Lost, Wire, Word, pack

OPEN_SECONDS = 5.0
PROBE_SECONDS = 0.2
"""So long the replicas may take to be there before anything is written."""
LOG = logging.getLogger("postroom.redis")


class RedisPublisher:
    """Deliver each message as an entry of a stream; the server's answer is its word that it has it.

    ```python
    RedisPublisher("redis://relay:password@server:6379/orders?wait=1", source="https://shop.example")
    ```

    A message goes to the stream its route names, else to its own topic, else to the URL's. How safe an answered message is
    is the server's matter (`appendonly`, `appendfsync`); `wait` and `waitaof` ask for more, and count what was got.
    """

    def __init__(self, url: str, *, source: str = "postroom") -> None:
        if not source:
            raise ConfigError("source is empty; CloudEvents needs one, like 'https://shop.example'.")
        self._settings = settings.read(url)
        self._binding = Binding(source)
        self._script = Script(self._settings)
        self._wires: deque[Wire] = deque()
        self._doubted: Wire | None = None
        """The one whose last messages are not where the URL wants them. Until they are, nothing more is written."""
        self._facts: server.Facts | None = None
        self._is_open = False
        self._publishing = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def capabilities(self) -> TransportCapabilities:
        """`durable` is what the server said when it was asked: without an append-only file it keeps nothing."""
        has_aof = self._facts is None or self._facts.has_aof is not False
        return TransportCapabilities(
            name="redis",
            durable=has_aof or self._settings.wait > 0,
            ordered=True,
            batches=True,
            largest=self._facts.largest if self._facts else None,
        )

    async def open(self) -> None:
        """Look whether the server answers and can do what the URL asks. When it is away, `publish` goes on trying."""
        self._is_open = True
        shown = self._settings.shown
        try:
            wire = await self._wire(monotonic() + OPEN_SECONDS)
        except (Away, Lost) as away:
            raise TransportUnavailable(
                f"No Redis to write to at {shown}: {away.error}; start it, or correct the URL."
            ) from None
        try:
            if self._settings.stream is not None:
                await self._look_at(wire, self._settings.stream)
        except BaseException:
            await wire.close()
            raise
        self._wires.append(wire)
        if self._settings.maxlen is not None:
            LOG.warning(
                "%s has maxlen=%s: entries beyond it are lost, whether they were read or not.",
                shown,
                self._settings.maxlen,
            )

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        if not self._is_open:
            return [Unavailable("CLOSED", "the publisher is not open")] * len(batch)
        if not batch:
            return []
        seconds = timeout.total_seconds()
        # A little less than it has, so that the answer is there in time.
        until = monotonic() + seconds - min(0.1 * seconds, 0.25)
        self._publishing += 1
        self._idle.clear()
        try:
            return await self._publish(batch, until)
        finally:
            self._publishing -= 1
            if not self._publishing:
                self._idle.set()

    async def close(self) -> None:
        self._is_open = False
        await self._idle.wait()
        await self._doubt(None)
        while self._wires:
            await self._wires.pop().close()

    async def _publish(self, batch: Sequence[Envelope], until: float) -> Sequence[Outcome]:
        try:
            wire = await self._wire(until)
        except (Away, Lost) as away:
            return [Unavailable(away.code, away.error)] * len(batch)
        except ConfigError as exc:
            return [Unavailable("UNSAFE", str(exc))] * len(batch)
        largest = self._facts.largest if self._facts else server.LARGEST_DEFAULT
        sending = Sending(batch, self._settings.stream, self._binding.words_of, largest)
        try:
            await self._send(wire, sending, until)
        finally:
            if wire.is_lost:
                await wire.close()
            elif wire is not self._doubted:
                self._wires.append(wire)
        return sending.outcomes

    async def _send(self, wire: Wire, sending: Sending, until: float) -> None:
        while monotonic() < until and (chunk := sending.take()) is not None:
            try:
                packed = pack(chunk.command("EVALSHA", self._script.sha))
            except UNWRITABLE:
                sending.weed(chunk)
                continue
            try:
                replies = await self._ask(wire, packed, chunk, until)
            except Lost as lost:
                sending.doubt(chunk, Failed(lost.code, lost.error, unknown=True))
                if lost.code != "TIMEOUT":
                    sending.give_up(Unavailable(lost.code, lost.error))
                break
            self._read(sending, chunk, replies)
            if self._short(replies) is not None:
                await self._doubt(wire)
                sending.give_up(Unavailable("NOT_CONFIRMED", "what was sent before it is not confirmed"))
            elif trouble := sending.trouble(chunk):
                await wire.close()  # another server may answer to this name by now
                sending.give_up(trouble)
        sending.give_up(NOT_STARTED)

    async def _ask(self, wire: Wire, packed: bytes, chunk: Chunk, until: float) -> list[Any]:
        """The answers to the script, and to the waiting that the URL wants."""
        waits = self._waits(until - monotonic())
        waiting = b"".join(map(pack, waits))
        replies = await wire.ask_packed(packed + waiting, 1 + len(waits), until - monotonic())
        if isinstance(replies[0], RedisError) and answers.code_of(replies[0]) == "NOSCRIPT":
            # It was started anew: this gives it the script as well.
            packed = pack(chunk.command("EVAL", self._script.text))
            replies = await wire.ask_packed(packed + waiting, 1 + len(waits), until - monotonic())
        return replies

    def _read(self, sending: Sending, chunk: Chunk, replies: Sequence[Any]) -> None:
        script = replies[0]
        if isinstance(script, RedisError):
            said = answers.told(script)
            if answers.ran_nothing(said):
                sending.refuse(chunk, said)
            else:
                sending.doubt(chunk, Failed("SCRIPT_FAILED", said, unknown=True))
            return
        sending.read(chunk, script)
        if (short := self._short(replies)) is not None:
            sending.doubt(chunk, short)

    def _waits(self, seconds: float) -> list[list[Word]]:
        """What the URL wants waited for. Never 0 milliseconds, which is for ever."""
        milliseconds = max(1, int(seconds * 900))
        waits: list[list[Word]] = []
        if self._settings.wait:
            waits.append(["WAIT", self._settings.wait, milliseconds])
        if self._settings.waitaof:
            waits.append(["WAITAOF", 1, 0, milliseconds])
        return waits

    def _short(self, replies: Sequence[Any]) -> Failed | None:
        """What is missing of what the URL wants."""
        waits = list(replies[1:])
        if self._settings.wait:
            got = waits.pop(0)
            if isinstance(got, RedisError):
                return Failed("NOT_REPLICATED", answers.told(got), unknown=True)
            if got < self._settings.wait:
                return answers.short_of(got, self._settings.wait)
        if self._settings.waitaof:
            got = waits.pop(0)
            if isinstance(got, RedisError):
                return Failed("NOT_ON_DISK", answers.told(got), unknown=True)
            if got[0] < 1:
                return answers.NOT_ON_DISK
        return None

    async def _wire(self, until: float) -> Wire:
        """A wire at whose end somebody is. Raises Away, Lost, ConfigError."""
        if (doubted := self._doubted) is not None:
            with suppress(Lost):
                await self._probe(doubted, until)
            if self._doubted is doubted:
                await self._doubt(None)
        while self._wires:
            wire = self._wires.pop()
            if not await wire.is_dirty() and (wire.is_fresh or await self._answers(wire, until)):
                return wire
            await wire.close()
        wire = Wire(self._settings)
        await wire.connect(until - monotonic())
        try:
            self._facts = await server.ask(wire, until - monotonic())
            server.check(self._facts, self._settings)
            await self._probe(wire, until)
        except BaseException:
            await wire.close()
            raise
        return wire

    async def _answers(self, wire: Wire, until: float) -> bool:
        try:
            await wire.ask(["PING"], seconds=until - monotonic())
            await self._probe(wire, until)
        except (Away, Lost):
            return False
        return True

    async def _probe(self, wire: Wire, until: float) -> None:
        """Are the replicas and the disk there that every message will wait for? Better asked before it is written.

        On a wire that was used it asks for what was written by it last."""
        if waits := self._waits(min(PROBE_SECONDS, until - monotonic())):
            replies = await wire.ask(*waits, seconds=until - monotonic())
            if (short := self._short([None, *replies])) is not None:
                raise Away(short.code, short.error)

    async def _doubt(self, wire: Wire | None) -> None:
        doubted, self._doubted = self._doubted, wire
        if doubted is not None and doubted is not wire:
            await doubted.close()

    async def _look_at(self, wire: Wire, stream: str) -> None:
        """ConfigError where the URL's stream is none."""
        shown = self._settings.shown
        try:
            (kind,) = await wire.ask(["TYPE", stream], seconds=OPEN_SECONDS)
        except Lost as lost:
            raise TransportUnavailable(f"{shown} does not answer any more: {lost.error}.") from None
        if isinstance(kind, RedisError):
            return  # it may be forbidden to ask, and allowed to write
        if kind == b"none" and not self._settings.create:
            raise ConfigError(f"{shown} cannot be written to: there is no such stream, and create=off; create it.")
        if kind not in {b"none", b"stream"}:
            raise ConfigError(f"{shown} cannot be written to: it is a {kind.decode()}, no stream; name another.")
