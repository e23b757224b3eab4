"""One batch on its way: what goes now, what waits for the one before it, and what became of each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from postroom.clock import monotonic
from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Envelope, Outcome, Sent
from postroom.transports.nats.outcomes import BROKEN, LOST, UNANSWERED

WINDOW = 4_000
"""So many are on their way at once: a stream refuses more than it can buffer."""

Send = Callable[[int, Envelope], Awaitable[Outcome | None]]
"""Writes a message to the connection; or says what becomes of one that cannot be written."""


class Batch:
    """A batch, and what became of it.

    Of each key one message is on its way at a time. A stream's leader may change, or the stream be full for a large one and
    not for the small one behind it: what follows a message that is not stored must not be stored before it."""

    def __init__(self, batch: Sequence[Envelope], send: Send, *, last_start: float) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(batch)
        self.under_way: set[int] = set()
        self.done = asyncio.Event()
        self.batch, self._send, self._last_start = batch, send, last_start
        self._next: dict[int, int] = {}
        self._ready = deque(self._first_of_each_key())

    def _first_of_each_key(self) -> list[int]:
        first: list[int] = []
        latest: dict[str, int] = {}
        for index, (message, _) in enumerate(self.batch):
            key = message.key
            if key is not None and key in latest:
                self._next[latest[key]] = index
            else:
                first.append(index)
            if key is not None:
                latest[key] = index
        return first

    async def go_on(self) -> None:
        """Send what can be sent now."""
        ready, under_way = self._ready, self.under_way
        while ready and len(under_way) < WINDOW and monotonic() < self._last_start:
            index = ready.popleft()
            under_way.add(index)
            outcome = await self._send(index, self.batch[index])
            if outcome is not None:
                self._settle(index, outcome)
        if not under_way and (not ready or monotonic() >= self._last_start):
            self.done.set()

    async def answer(self, index: int, outcome: Outcome) -> None:
        """The stream said what became of it."""
        if index in self.under_way:
            self._settle(index, outcome)
            if self._ready or not self.under_way:
                await self.go_on()

    def give_up(self, *, is_broken: bool) -> bool:
        """The connection is gone, or the time is up; whether the fate of some is not known."""
        self._ready.clear()
        missing, self.under_way = self.under_way, set()
        for index in missing:
            self._stop(index, BROKEN if is_broken else UNANSWERED)
        if is_broken:
            self.outcomes = [LOST if outcome is NOT_STARTED else outcome for outcome in self.outcomes]
        self.done.set()
        return bool(missing)

    def _settle(self, index: int, outcome: Outcome) -> None:
        self.under_way.discard(index)
        if not isinstance(outcome, Sent):
            self._stop(index, outcome)
            return
        self.outcomes[index] = outcome
        if (follower := self._next.get(index)) is not None:
            self._ready.append(follower)

    def _stop(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        while (follower := self._next.get(index)) is not None:
            self.outcomes[follower] = KEY_STOPPED
            index = follower
