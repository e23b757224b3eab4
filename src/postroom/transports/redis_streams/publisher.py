"""The sending side: each batch on a connection of its own, chunk after chunk."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.contracts.transport import NOT_STARTED, Envelope, Failed, Outcome, TransportCapabilities, Unavailable
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.transports.publishing import Calls, Deadline, checked_source
from postroom.transports.redis_streams import server
from postroom.transports.redis_streams.batch import UNWRITABLE, Batch, Chunk, Confirmation, Script
from postroom.transports.redis_streams.connection import Away, Lost, RedisConnection, pack
from postroom.transports.redis_streams.encoding import Encoding
from postroom.transports.redis_streams.outcomes import code_of, ran_nothing, told
from postroom.transports.redis_streams.server import LARGEST_DEFAULT, Facts
from postroom.transports.redis_streams.url import RedisUrl, read
from postroom.transports.refusals import not_opened

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
        self._settings = read(url)
        self._encoding = Encoding(checked_source(source))
        self._script = Script(self._settings)
        self._confirmation = Confirmation(self._settings)
        self._connections = ProducerConnections(self._settings, self._confirmation)
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        """`durable` is what the server said when it was asked: without an append-only file it keeps nothing."""
        facts = self._connections.facts
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
        self._calls.open()
        shown = self._settings.shown
        try:
            connection = await self._connections.take(monotonic() + OPEN_SECONDS)
        except (Away, Lost) as away:
            sentence = f"No Redis to write to at {shown}: {away.error}; start it, or correct the URL."
            raise not_opened(away.code, sentence) from None
        try:
            if self._settings.stream is not None:
                await self._look_at(connection, self._settings.stream)
        except BaseException:
            await connection.close()
            raise
        await self._connections.give_back(connection)
        if self._settings.maxlen is not None:
            LOG.warning(
                "%s has maxlen=%s: entries beyond it are lost, whether they were read or not.",
                shown,
                self._settings.maxlen,
            )

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def close(self) -> None:
        await self._calls.close()
        await self._connections.close()

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        try:
            connection = await self._connections.take(by.until)
        except (Away, Lost) as away:
            return [Unavailable(away.code, away.error)] * len(batch)
        except ConfigError as exc:
            return [Unavailable("UNSAFE", str(exc))] * len(batch)
        facts = self._connections.facts
        largest = facts.largest if facts else LARGEST_DEFAULT
        sending = Batch(batch, self._settings.stream, self._encoding.words_of, largest)
        try:
            await self._send(connection, sending, by.until)
        finally:
            await self._connections.give_back(connection)
        return sending.outcomes

    async def _send(self, connection: RedisConnection, sending: Batch, until: float) -> None:
        while monotonic() < until and (chunk := sending.take()) is not None:
            try:
                packed = pack(chunk.command("EVALSHA", self._script.sha))
            except UNWRITABLE:
                sending.weed(chunk)
                continue
            try:
                replies = await self._ask(connection, packed, chunk, until)
            except Lost as lost:
                sending.doubt(chunk, Failed(lost.code, lost.error, unknown=True))
                if lost.code != "TIMEOUT":
                    sending.give_up(Unavailable(lost.code, lost.error))
                break
            self._read(sending, chunk, replies)
            if self._confirmation.missing(replies[1:]) is not None:
                await self._connections.doubt(connection)
                sending.give_up(Unavailable("NOT_CONFIRMED", "what was sent before it is not confirmed"))
            elif trouble := sending.trouble(chunk):
                await connection.close()  # another server may answer to this name by now
                sending.give_up(trouble)
        sending.give_up(NOT_STARTED)

    async def _ask(self, connection: RedisConnection, packed: bytes, chunk: Chunk, until: float) -> list[Any]:
        """The answers to the script, and to the waiting that the URL wants."""
        waits = self._confirmation.commands(until - monotonic())
        waiting = b"".join(map(pack, waits))
        replies = await connection.ask_packed(packed + waiting, 1 + len(waits), until - monotonic())
        if isinstance(replies[0], RedisError) and code_of(replies[0]) == "NOSCRIPT":
            # It was started again: this gives it the script as well.
            packed = pack(chunk.command("EVAL", self._script.text))
            replies = await connection.ask_packed(packed + waiting, 1 + len(waits), until - monotonic())
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

    async def _look_at(self, connection: RedisConnection, stream: str) -> None:
        """ConfigError where the URL's stream is none."""
        shown = self._settings.shown
        try:
            (kind,) = await connection.ask(["TYPE", stream], seconds=OPEN_SECONDS)
        except Lost as lost:
            raise TransportUnavailable(f"{shown} does not answer any more: {lost.error}.") from None
        if isinstance(kind, RedisError):
            return  # it may be forbidden to ask, and allowed to write
        if kind == b"none" and not self._settings.create:
            raise TransportRefused(f"{shown} cannot be written to: there is no such stream, and create=off; create it.")
        if kind not in {b"none", b"stream"}:
            raise TransportRefused(
                f"{shown} cannot be written to: it is a {kind.decode()}; it must be a stream; name another."
            )


class ProducerConnections:
    """The connections of a publisher: one for each batch under way, kept for the next."""

    def __init__(self, settings: RedisUrl, confirmation: Confirmation) -> None:
        self._settings, self._confirmation = settings, confirmation
        self._idle: deque[RedisConnection] = deque()
        self._doubted: RedisConnection | None = None
        """The one whose last messages are not where the URL wants them. Until they are, nothing more is written."""
        self.facts: Facts | None = None
        """What the server last said of itself."""

    async def take(self, until: float) -> RedisConnection:
        """Raises Away, Lost: nothing was written; ConfigError when this server cannot do what the URL asks."""
        if (doubted := self._doubted) is not None:
            with suppress(Lost):
                await self._probe(doubted, until)
            if self._doubted is doubted:
                await self.doubt(None)
        while self._idle:
            connection = self._idle.pop()
            if not await connection.is_dirty() and (connection.is_fresh or await self._answers(connection, until)):
                return connection
            await connection.close()
        return await self._open(until)

    async def give_back(self, connection: RedisConnection) -> None:
        """It may serve the next batch, unless it broke."""
        if connection.is_lost:
            await connection.close()
        elif connection is not self._doubted:
            self._idle.append(connection)

    async def doubt(self, connection: RedisConnection | None) -> None:
        """What went by this connection is not confirmed; None: there is no doubt any more."""
        doubted, self._doubted = self._doubted, connection
        if doubted is not None and doubted is not connection:
            await doubted.close()

    async def close(self) -> None:
        """Hang up all that are not in use."""
        await self.doubt(None)
        while self._idle:
            await self._idle.pop().close()

    async def _open(self, until: float) -> RedisConnection:
        connection = RedisConnection(self._settings)
        await connection.connect(until - monotonic())
        try:
            self.facts = await server.ask(connection, until - monotonic())
            server.check(self.facts, self._settings)
            await self._probe(connection, until)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _answers(self, connection: RedisConnection, until: float) -> bool:
        try:
            await connection.ask(["PING"], seconds=until - monotonic())
            await self._probe(connection, until)
        except (Away, Lost):
            return False
        return True

    async def _probe(self, connection: RedisConnection, until: float) -> None:
        """Are the replicas and the disk there that every message will wait for? Better asked before it is written.

        On a connection that was used it asks for what was written by it last."""
        if waits := self._confirmation.commands(min(PROBE_SECONDS, until - monotonic())):
            replies = await connection.ask(*waits, seconds=until - monotonic())
            if (missing := self._confirmation.missing(replies)) is not None:
                raise Away(missing.code, missing.error)
