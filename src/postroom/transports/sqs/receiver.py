"""An open receiver at work: long polls, holds that are prolonged in the background, and whole groups that go back together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

from postroom.contracts.transport import Delivery
from postroom.errors import TransportUnavailable
from postroom.transports.sqs.acknowledging import Acknowledging
from postroom.transports.sqs.connection import BATCH, Queue, SqsConnection
from postroom.transports.sqs.decoding import event_in
from postroom.transports.sqs.inflight import InFlight, InFlightMessage
from postroom.transports.sqs.polling import Polling, Raw

ANSWER_SECONDS = 15.0
CLOSE_SECONDS = 5.0
POLL_END_SECONDS = 1.0
"""So long a poll is waited for when the receiver leaves."""
IN_HAND_SECONDS = 0.05
"""How often is looked whether there is room again."""


class SqsReceiver:
    """An open receiver: what it has in hand, and what of that was not handed out yet."""

    def __init__(self, client: SqsConnection, queue: Queue, prefetch: int) -> None:
        self._client, self._queue, self._prefetch = client, queue, prefetch
        self._patience = min(queue.hold, ANSWER_SECONDS)
        """So long an answer is waited for: later, another may have the message anyway."""
        self._holds = InFlight(queue.hold)
        self._ready: deque[Delivery] = deque()
        self._owed: list[InFlightMessage] = []
        """Lost to us, but SQS hides them still: given back as soon as it answers."""
        self._hands = Acknowledging(client.sqs, queue)
        self._polling = Polling(client.sqs, queue, self._came)
        self._changing = asyncio.Lock()
        """One says at a time when others see a message: a prolonging that comes late would undo what was said meanwhile."""
        self._background = asyncio.get_running_loop().create_task(self._keep())

    async def receive(self, limit: int, wait: float, shown: str) -> list[Delivery]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            if self._background.done():
                self._background.result()  # it never ends by itself: nothing would be prolonged any more
            if self._polling.trouble is not None:
                self._let_go(shown)
            if self._ready:
                return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
            left = until - loop.time()
            room = self._prefetch - len(self._holds)
            # Ten cost what one does; and while one of a group is in hand, SQS gives out no other of it.
            self._polling.ask(min(room, max(limit, BATCH)), max(left, 0))
            if left <= 0:
                return []
            await self._polling.next(left if room > 0 else min(left, IN_HAND_SECONDS))

    def has(self, hold: InFlightMessage) -> bool:
        return self._holds.has(hold, asyncio.get_running_loop().time())

    async def delete(self, holds: Sequence[InFlightMessage]) -> None:
        mine = [hold for hold in dict.fromkeys(holds) if self.has(hold)]
        for hold in mine:
            self._holds.drop(hold)
        if mine:
            await self._hands.delete(mine, seconds=self._patience)

    async def give_back(self, hold: InFlightMessage, delay: float) -> None:
        """And what is behind it of its group, which would be out of order now."""
        if self.has(hold):
            together = self._lose(hold)
            async with self._changing:
                await self._hands.show(together, after=delay, seconds=self._patience)

    async def close(self) -> None:
        await self._polling.end(POLL_END_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS), self._changing:
                self._background.cancel()
        self._background.cancel()
        self._ready.clear()
        await self._hands.show(self._holds.clear(), after=0, seconds=CLOSE_SECONDS)
        await asyncio.gather(self._background, return_exceptions=True)
        await self._client.close()

    def _came(self, messages: list[Raw]) -> None:
        now = asyncio.get_running_loop().time()
        for raw in messages:
            facts = raw.get("Attributes", {})
            message, source, fault = event_in(raw["Body"], raw.get("MessageAttributes", {}))
            hold = self._holds.take(
                raw["ReceiptHandle"], facts.get("MessageGroupId") if self._queue.is_fifo else None, now
            )
            before = int(facts.get("ApproximateReceiveCount", 1)) - 1
            self._ready.append(Delivery(message, source, self._queue.name, before, fault, hold))

    def _lose(self, hold: InFlightMessage) -> list[InFlightMessage]:
        """It is not ours any more, nor is what is behind it of its group; which those are."""
        together = self._holds.with_what_is_behind(hold)
        for each in together:
            self._holds.drop(each)
        gone = set(together)
        self._ready = deque(delivery for delivery in self._ready if delivery.token not in gone)
        return together

    def _let_go(self, shown: str) -> None:
        """SQS does not answer: what was in hand is lost, and the caller told."""
        trouble, self._polling.trouble = self._polling.trouble, None
        self._owed += self._holds.clear()
        self._ready.clear()
        code, said = getattr(trouble, "code", ""), getattr(trouble, "error", "")
        raise TransportUnavailable(f"No SQS answers at {shown} ({code}): {said}; start it, or wait.")

    async def _keep(self) -> None:
        """Prolong what is in hand, for as long as it is; and notice what is not ours any more."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self._queue.hold / 6, 1.0))
            self._say_lost(self._holds.run_out(loop.time()))
            async with self._changing:
                begin, due = loop.time(), self._holds.due(loop.time())
                done, refused = await self._hands.show(due, after=self._queue.hold, seconds=self._patience / 3)
            for hold in done:
                self._holds.renew(hold, begin)
            self._say_lost(refused)
            await self._pay()

    def _say_lost(self, holds: Iterable[InFlightMessage]) -> None:
        """They are not ours any more. What is behind them of their groups may go to whoever gets them."""
        self._owed += [behind for hold in holds for behind in self._lose(hold)[1:]]

    async def _pay(self) -> None:
        """Give back what we have no use for, unless its time is over anyway."""
        now = asyncio.get_running_loop().time()
        owed = [hold for hold in self._owed if now < hold.until]
        self._owed = []
        done, refused = await self._hands.show(owed, after=0, seconds=self._patience / 3)
        self._owed += [hold for hold in owed if hold not in done | refused]
