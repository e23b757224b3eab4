"""One connected life of a receiver: a wire that waits for new entries, a wire for all else, and a heartbeat."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from redis.exceptions import RedisError

from postroom.clock import monotonic
from postroom.transports.redis_streams.connection import Lost, RedisConnection, Word, whole
from postroom.transports.redis_streams.inflight import InFlight, entry_of
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

    def __init__(self, settings: RedisUrl, group: str, receiver: str, hand: InFlight) -> None:
        self._settings, self._group, self._receiver, self._hand = settings, group, receiver, hand
        self.control, self._reader = RedisConnection(settings), RedisConnection(settings)
        self.seconds = min(GRACE_SECONDS, settings.hold)
        self.holds = PendingScripts(self.control, settings, group, receiver, self.seconds)
        self._block = min(BLOCK_SECONDS, settings.hold / 3)
        self._reader_id = 0
        """By which its wait can be ended; 0: we may not know. Then leaving takes as long as the wait."""
        self._reading: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._strays: set[bytes] = set()
        """What is ours as the server says, and we know nothing of."""
        self.trouble: Exception | None = None
        """Why this session is over."""
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
        await self.holds.leave(for_good=False)
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

    async def wait(self, changed: asyncio.Event, seconds: float) -> None:
        """Until something changed, something new has come, or the time is over."""
        waiting = asyncio.create_task(changed.wait())
        try:
            await asyncio.wait(
                {waiting, *self._under_way()},
                timeout=max(seconds, 0.0),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()

    async def leave(self) -> None:
        """Give all back, and go."""
        await self._stop_beating()
        with suppress(Lost, RedisError, TimeoutError):
            if under_way := self._under_way():
                if self._reader_id:
                    await self.control.ask(["CLIENT", "UNBLOCK", self._reader_id], seconds=self.seconds)
                await asyncio.wait(under_way, timeout=self._block + self.seconds)
            await self.holds.leave(for_good=True)
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
        taken, trimmed, others = await self.holds.take(number)
        self._hand.put(entry_of(*each) for each in taken)
        if trimmed:
            LOG.warning("%s: %s messages were trimmed before they were handled.", self._settings.shown, trimmed)
        # The server may still have given an entry to one that died, for as long as that one's last read lasted.
        alive_for = monotonic() - self._began_at - self._block
        left = others.pop(HEIR, None)
        self.is_settled = left is None and (self.is_settled or all(idle < alive_for for idle in others.values()))
        self.look_at = monotonic() + (LOOK_SECONDS if self.is_settled else UNSETTLED_SECONDS)

    async def _read(self, number: int) -> None:
        group = ["GROUP", self._group, self._receiver]
        block = max(1, int(self._block * 1000))  # never 0, which is for ever
        command: list[Word] = [
            "XREADGROUP",
            *group,
            "COUNT",
            number,
            "BLOCK",
            block,
            "STREAMS",
            self._settings.stream or "",
            ">",
        ]
        try:
            (answer,) = await self._reader.ask(command, seconds=self._block + GRACE_SECONDS)
        except Lost as lost:
            self.trouble = lost
            return
        if isinstance(answer, RedisError):
            self.trouble = answer
        else:
            self._hand.put(entry_of(id_, words) for _, entries in answer or () for id_, words in entries)

    async def _beat(self) -> None:
        """Prolong what is ours, three times in a hold; and see what is not ours any more."""
        while True:
            await asyncio.sleep(self._settings.hold / 3)
            before = self._hand.ids
            try:
                ours = await whole(self.holds.keep())
            except (Lost, RedisError) as trouble:
                self._end(trouble)
                return
            if lost := before & self._hand.ids - ours:
                LOG.warning("%s: %s messages were taken over by others.", self._settings.shown, len(lost))
                self._hand.drop(lost)
            if self._strays & (strays := ours - before - self._hand.ids):
                self._end(Lost("STRAYS", "the server holds messages for us that never came"))
                return
            self._strays = strays

    def _end(self, trouble: Exception) -> None:
        """What was in hand is lost. Whoever receives next is told."""
        self.trouble = trouble
        self._hand.clear()

    async def _stop_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None and beating is not asyncio.current_task():
            beating.cancel()
            await asyncio.wait({beating})
