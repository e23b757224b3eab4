"""One connected life of a receiver: a connection that waits for new entries, one for all else, and a heartbeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.contracts.transport import Delivery
from postroom.transports.inflight import InFlight, InFlightMessage
from postroom.transports.redis_streams.connection import Lost, RedisConnection, Word, whole
from postroom.transports.redis_streams.encoding import read
from postroom.transports.redis_streams.pending import HEIR, PendingScripts
from postroom.transports.redis_streams.url import RedisUrl

BLOCK_SECONDS = 1.0
"""So long at most the server waits for a new entry before it says that there is none."""
LOOK_SECONDS = 1.0
UNSETTLED_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""So much later than expected an answer may come."""
LOG = logging.getLogger("postroom.redis")


class RedisReceiver:
    """From a connection to its loss."""

    def __init__(
        self, settings: RedisUrl, group: str, receiver: str, in_flight: InFlight[bytes], tell: Callable[[], None]
    ) -> None:
        """What comes is put into *in_flight*, and *tell* is called."""
        self._settings, self._group, self._receiver = settings, group, receiver
        self._in_flight, self._tell, self._stream = in_flight, tell, settings.stream or ""
        self.control, self._reader = RedisConnection(settings), RedisConnection(settings)
        self.seconds = min(GRACE_SECONDS, settings.hold)
        self.pending = PendingScripts(self.control, settings, group, receiver, self.seconds)
        self._block = min(BLOCK_SECONDS, settings.hold / 3)
        self._reader_id = 0
        """By which its wait can be ended; 0: we may not know. Then leaving takes as long as the wait."""
        self._reading: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._strays: set[bytes] = set()
        """What is ours as the server says, and we know nothing of."""
        self.trouble: Exception | None = None
        """Why it is over."""
        self._began_at = 0.0
        self.look_at = 0.0
        """When to look again for what others left."""
        self.is_settled = False
        """Nobody else holds anything, but who is alive: what is new may be read."""

    async def connect(self, seconds: float) -> None:
        """Raises Away, Lost."""
        try:
            await self.control.connect(seconds)
            await self._reader.connect(seconds)
            (reader_id,) = await self._reader.ask(["CLIENT", "ID"], seconds=seconds)
            self._reader_id = 0 if isinstance(reader_id, RedisError) else reader_id
        except BaseException:
            await self.close()
            raise

    async def begin(self) -> None:
        """Let go of what an earlier life of this receiver had, so that it comes again; and keep what comes from now on."""
        await self.pending.leave(for_good=False)
        self._began_at = monotonic()
        self._beating = asyncio.create_task(self._beat())

    async def look(self, number: int) -> None:
        """Take what nobody holds any more.

        A new receiver cannot tell a dead one from one that is silent for a moment. So it waits: until that one is silent for
        longer than its hold, and what it had is taken; or until it is seen alive, and the two share the messages."""
        await whole(self._look(number))

    def start_reading(self, number: int) -> None:
        """Ask for new entries, unless that is under way. It goes on when nobody waits for it: no entry gets lost between."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(number))

    def check(self) -> None:
        """Raises what became of the connection: Lost, RedisError."""
        if self.trouble is not None:
            raise self.trouble

    async def leave(self) -> None:
        """Give all back, and go."""
        await self._stop_beating()
        with suppress(Lost, RedisError, TimeoutError):
            if under_way := self._under_way():
                if self._reader_id:
                    await self.control.ask(["CLIENT", "UNBLOCK", self._reader_id], seconds=self.seconds)
                await asyncio.wait(under_way, timeout=self._block + self.seconds)
            await self.pending.leave(for_good=True)
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._stop_beating()
        for reading in self._under_way():
            reading.cancel()
            await asyncio.wait({reading})
        await self.control.close()
        await self._reader.close()

    def _under_way(self) -> list[asyncio.Task[None]]:
        return [self._reading] if self._reading is not None and not self._reading.done() else []

    async def _look(self, number: int) -> None:
        taken, trimmed, others = await self.pending.take(number)
        for entry in taken:
            self._in_flight.arrive(delivery_of(self._stream, *entry))
        if trimmed:
            LOG.warning("%s: %s messages were trimmed before they were handled.", self._settings.shown, trimmed)
        # The server may still have given an entry to one that died, for as long as that one's last read lasted.
        alive_for = monotonic() - self._began_at - self._block
        left = others.pop(HEIR, None)
        self.is_settled = left is None and (self.is_settled or all(idle < alive_for for idle in others.values()))
        self.look_at = monotonic() + (LOOK_SECONDS if self.is_settled else UNSETTLED_SECONDS)

    async def _read(self, number: int) -> None:
        group = ["GROUP", self._group, self._receiver]
        block = max(1, int(self._block * 1000))  # never 0, which is forever
        command: list[Word] = [
            "XREADGROUP",
            *group,
            "COUNT",
            number,
            "BLOCK",
            block,
            "STREAMS",
            self._stream,
            ">",
        ]
        try:
            (answer,) = await self._reader.ask(command, seconds=self._block + GRACE_SECONDS)
            if isinstance(answer, RedisError):
                raise answer
        except (Lost, RedisError) as trouble:
            self.trouble = trouble
        else:
            for entry in (each for _, entries in answer or () for each in entries):
                self._in_flight.arrive(delivery_of(self._stream, *entry))
        finally:
            self._tell()

    def _ids(self) -> set[bytes]:
        return {each.token.receipt for each in self._in_flight}

    async def _beat(self) -> None:
        """Prolong what is ours, three times in a hold; and see what is not ours any more."""
        while True:
            await asyncio.sleep(self._settings.hold / 3)
            before = self._ids()
            try:
                ours = await whole(self.pending.keep())
            except (Lost, RedisError) as trouble:
                self._end(trouble)
                return
            if lost := [each for each in self._in_flight if each.token.receipt in before - ours]:
                LOG.warning("%s: %s messages were taken over by others.", self._settings.shown, len(lost))
                self._in_flight.lost(lost)
            if self._strays & (strays := ours - before - self._ids()):
                self._end(Lost("STRAYS", "the server holds messages for us that never came"))
                return
            self._strays = strays

    def _end(self, trouble: Exception) -> None:
        """What was in flight is lost. Whoever receives is told."""
        self.trouble = trouble
        self._in_flight.lose_all()
        self._tell()

    async def _stop_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None and beating is not asyncio.current_task():
            beating.cancel()
            await asyncio.wait({beating})


def delivery_of(stream: str, id_: bytes, words: Sequence[bytes], deliveries: int = 1) -> Delivery:
    """An entry as the server tells it. Its place in the order is its place in the stream."""
    milliseconds, _, number = id_.partition(b"-")
    message, source, fault = read(words)
    token = InFlightMessage((int(milliseconds), int(number)), id_, message.key)
    return Delivery(message, source, stream, deliveries - 1, fault, token)
