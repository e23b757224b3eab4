"""The wires of a publisher: one for each batch under way, kept for the next."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from postroom.clock import monotonic
from postroom.transports.redis_streams import server
from postroom.transports.redis_streams.confirmation import Confirmation
from postroom.transports.redis_streams.connection import Away, Lost, RedisConnection
from postroom.transports.redis_streams.server import Facts
from postroom.transports.redis_streams.url import RedisUrl

PROBE_SECONDS = 0.2
"""So long the replicas may take to be there before anything is written."""


class ProducerConnections:
    """Gives out wires at whose end somebody is."""

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
            wire = self._idle.pop()
            if not await wire.is_dirty() and (wire.is_fresh or await self._answers(wire, until)):
                return wire
            await wire.close()
        return await self._open(until)

    async def give_back(self, wire: RedisConnection) -> None:
        """It may serve the next batch, unless it broke."""
        if wire.is_lost:
            await wire.close()
        elif wire is not self._doubted:
            self._idle.append(wire)

    async def doubt(self, wire: RedisConnection | None) -> None:
        """What went by this wire is not confirmed; None: there is no doubt any more."""
        doubted, self._doubted = self._doubted, wire
        if doubted is not None and doubted is not wire:
            await doubted.close()

    async def close(self) -> None:
        """Hang up all that are not in use."""
        await self.doubt(None)
        while self._idle:
            await self._idle.pop().close()

    async def _open(self, until: float) -> RedisConnection:
        wire = RedisConnection(self._settings)
        await wire.connect(until - monotonic())
        try:
            self.facts = await server.ask(wire, until - monotonic())
            server.check(self.facts, self._settings)
            await self._probe(wire, until)
        except BaseException:
            await wire.close()
            raise
        return wire

    async def _answers(self, wire: RedisConnection, until: float) -> bool:
        try:
            await wire.ask(["PING"], seconds=until - monotonic())
            await self._probe(wire, until)
        except (Away, Lost):
            return False
        return True

    async def _probe(self, wire: RedisConnection, until: float) -> None:
        """Are the replicas and the disk there that every message will wait for? Better asked before it is written.

        On a wire that was used it asks for what was written by it last."""
        if waits := self._confirmation.commands(min(PROBE_SECONDS, until - monotonic())):
            replies = await wire.ask(*waits, seconds=until - monotonic())
            if (missing := self._confirmation.missing(replies)) is not None:
                raise Away(missing.code, missing.error)
