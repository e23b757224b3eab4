"""The sending side: each batch on a wire of its own, chunk after chunk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.contracts.transport import NOT_STARTED, Envelope, Failed, Outcome, TransportCapabilities, Unavailable
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.transports.redis_streams.add_script import Script
from postroom.transports.redis_streams.batch import UNWRITABLE, Batch, Chunk
from postroom.transports.redis_streams.confirmation import Confirmation
from postroom.transports.redis_streams.connection import Away, Lost, RedisConnection, pack
from postroom.transports.redis_streams.encoding import Encoding
from postroom.transports.redis_streams.outcomes import code_of, ran_nothing, told
from postroom.transports.redis_streams.producer import ProducerConnections
from postroom.transports.redis_streams.server import LARGEST_DEFAULT
from postroom.transports.redis_streams.url import read
from postroom.transports.refusals import not_opened

OPEN_SECONDS = 5.0
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
        self._settings = read(url)
        self._binding = Encoding(source)
        self._script = Script(self._settings)
        self._confirmation = Confirmation(self._settings)
        self._wires = ProducerConnections(self._settings, self._confirmation)
        self._is_open = False
        self._publishing = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def capabilities(self) -> TransportCapabilities:
        """`durable` is what the server said when it was asked: without an append-only file it keeps nothing."""
        facts = self._wires.facts
        has_aof = facts is None or facts.has_aof is not False
        return TransportCapabilities(
            name="redis",
            durable=has_aof or self._settings.wait > 0,
            ordered=True,
            batches=True,
            largest=facts.largest if facts else None,
        )

    async def open(self) -> None:
        """Look whether the server answers and can do what the URL asks. When it is away, `publish` goes on trying."""
        self._is_open = True
        shown = self._settings.shown
        try:
            wire = await self._wires.take(monotonic() + OPEN_SECONDS)
        except (Away, Lost) as away:
            sentence = f"No Redis to write to at {shown}: {away.error}; start it, or correct the URL."
            raise not_opened(away.code, sentence) from None
        try:
            if self._settings.stream is not None:
                await self._look_at(wire, self._settings.stream)
        except BaseException:
            await wire.close()
            raise
        await self._wires.give_back(wire)
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
        await self._wires.close()

    async def _publish(self, batch: Sequence[Envelope], until: float) -> Sequence[Outcome]:
        try:
            wire = await self._wires.take(until)
        except (Away, Lost) as away:
            return [Unavailable(away.code, away.error)] * len(batch)
        except ConfigError as exc:
            return [Unavailable("UNSAFE", str(exc))] * len(batch)
        facts = self._wires.facts
        largest = facts.largest if facts else LARGEST_DEFAULT
        sending = Batch(batch, self._settings.stream, self._binding.words_of, largest)
        try:
            await self._send(wire, sending, until)
        finally:
            await self._wires.give_back(wire)
        return sending.outcomes

    async def _send(self, wire: RedisConnection, sending: Batch, until: float) -> None:
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
            if self._confirmation.missing(replies[1:]) is not None:
                await self._wires.doubt(wire)
                sending.give_up(Unavailable("NOT_CONFIRMED", "what was sent before it is not confirmed"))
            elif trouble := sending.trouble(chunk):
                await wire.close()  # another server may answer to this name by now
                sending.give_up(trouble)
        sending.give_up(NOT_STARTED)

    async def _ask(self, wire: RedisConnection, packed: bytes, chunk: Chunk, until: float) -> list[Any]:
        """The answers to the script, and to the waiting that the URL wants."""
        waits = self._confirmation.commands(until - monotonic())
        waiting = b"".join(map(pack, waits))
        replies = await wire.ask_packed(packed + waiting, 1 + len(waits), until - monotonic())
        if isinstance(replies[0], RedisError) and code_of(replies[0]) == "NOSCRIPT":
            # It was started anew: this gives it the script as well.
            packed = pack(chunk.command("EVAL", self._script.text))
            replies = await wire.ask_packed(packed + waiting, 1 + len(waits), until - monotonic())
        return replies

    def _read(self, sending: Batch, chunk: Chunk, replies: Sequence[Any]) -> None:
        script = replies[0]
        if isinstance(script, RedisError):
            said = told(script)
            if ran_nothing(said):
                sending.refuse(chunk, said)
            else:
                sending.doubt(chunk, Failed("SCRIPT_FAILED", said, unknown=True))
            return
        sending.read(chunk, script)
        if (missing := self._confirmation.missing(replies[1:])) is not None:
            sending.doubt(chunk, missing)

    async def _look_at(self, wire: RedisConnection, stream: str) -> None:
        """ConfigError where the URL's stream is none."""
        shown = self._settings.shown
        try:
            (kind,) = await wire.ask(["TYPE", stream], seconds=OPEN_SECONDS)
        except Lost as lost:
            raise TransportUnavailable(f"{shown} does not answer any more: {lost.error}.") from None
        if isinstance(kind, RedisError):
            return  # it may be forbidden to ask, and allowed to write
        if kind == b"none" and not self._settings.create:
            raise TransportRefused(f"{shown} cannot be written to: there is no such stream, and create=off; create it.")
        if kind not in {b"none", b"stream"}:
            raise TransportRefused(f"{shown} cannot be written to: it is a {kind.decode()}, no stream; name another.")
