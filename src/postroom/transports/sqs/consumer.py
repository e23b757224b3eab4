"""The receiving side: long polls, leases that are prolonged in the background, and whole groups that go back together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.inflight import InFlight, InFlightMessage
from postroom.transports.receiving import ReceivingConsumer, checked_prefetch
from postroom.transports.sqs.acknowledging import Acknowledging, Lease, lease
from postroom.transports.sqs.connection import BATCH, Queue, SqsConnection
from postroom.transports.sqs.decoding import event_in
from postroom.transports.sqs.polling import POLLS_MAX, Polling, Raw
from postroom.transports.sqs.url import EXAMPLE, is_fifo, read

PREFETCH_DEFAULT = 100
ANSWER_SECONDS = 15.0
CLOSE_SECONDS = 5.0
POLL_END_SECONDS = 1.0
"""So long a poll is waited for when the receiver leaves."""


class SqsConsumer(ReceivingConsumer):
    """See `postroom.contracts.transport` for what each method promises.

    ```python
    SqsConsumer("sqs://eu-central-1/orders.fifo", prefetch=50)
    ```

    A queue is one group: whoever receives from it shares its messages. For several groups give each its own queue."""

    def __init__(self, url: str, *, prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__()
        self._address = read(url)
        if self._address.queue is None:
            raise ConfigError(f"{self._address.shown} names no queue to receive from; give one like {EXAMPLE}.")
        self._name, self._prefetch = self._address.queue, checked_prefetch(prefetch)
        self._receiver: SqsReceiver | None = None

    @property
    def capabilities(self) -> ConsumerCapabilities:
        """Ordered and shared at once on FIFO: SQS gives each group to one receiver at a time."""
        ordered = is_fifo(self._name)
        return ConsumerCapabilities(
            name="sqs", durable=True, ordered=ordered, shares=True, counts_redeliveries=True, groups=False
        )

    async def open(self) -> None:
        if self._receiver is not None:
            return
        client = await SqsConnection(self._address, connections=POLLS_MAX + BATCH).open()
        try:
            queue = await client.look()
            if queue is None or queue.hold < 1:
                raise ConfigError(
                    f"{self._address.shown} has a VisibilityTimeout of 0: what is received comes again at once; set 30 seconds."
                )
        except BaseException:
            await client.close()
            raise
        self._receiver = SqsReceiver(client, queue, self._prefetch, self._news.set)

    def is_lost(self, delivery: Delivery) -> bool:
        return self._receiver is None or self._receiver.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        if self._receiver is not None:
            await self._receiver.delete(deliveries)

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if self._receiver is not None:
            await self._receiver.give_back(delivery, delay.total_seconds())

    async def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.close()

    async def _begin(self, until: float) -> None:  # noqa: ARG002 - it waits for nothing
        if self._receiver is None:
            raise TransportUnavailable(f"{self._address.shown} is not open; call `await consumer.open()` first.")

    async def _take(self, limit: int, until: float) -> Sequence[Delivery] | None:
        receiver = self._receiver
        if receiver is None:
            return None
        receiver.check(self._address.shown)
        return receiver.give(limit, until)


class SqsReceiver:
    """An open receiver: what it has in flight, and until when."""

    def __init__(self, client: SqsConnection, queue: Queue, prefetch: int, tell: Callable[[], None]) -> None:
        """*tell* is called when there may be something to give, or room for more."""
        self._client, self._queue, self._prefetch, self._tell = client, queue, prefetch, tell
        self._patience = min(queue.hold, ANSWER_SECONDS)
        """So long an answer is waited for: later, another may have the message anyway."""
        self._in_flight = InFlight[Lease]()
        """In the order they came."""
        self._numbers = count()
        self._owed: list[Lease] = []
        """Lost to us, but SQS hides them still: given back as soon as it answers."""
        self._acknowledging = Acknowledging(client.sqs, queue)
        self._polling = Polling(client.sqs, queue, self._came, tell)
        self._changing = asyncio.Lock()
        """One says at a time when others see a message: a prolonging that comes late would undo what was said meanwhile."""
        self._background = asyncio.get_running_loop().create_task(self._keep())

    def check(self, shown: str) -> None:
        """Raise what keeps it from receiving."""
        if self._background.done():
            self._background.result()  # it never ends by itself: nothing would be prolonged any more
        if (error := self._polling.error) is not None:
            self._polling.error = None
            raise error
        if self._polling.trouble is not None:
            self._let_go(shown)

    def give(self, limit: int, until: float) -> list[Delivery]:
        """Return what is here; if that is nothing, ask SQS for more."""
        if given := self._in_flight.give(limit, monotonic()):
            return given
        # Ten cost what one does; and while one of a group is in flight, SQS gives out no other of it.
        room = min(self._prefetch - len(self._in_flight), max(limit, BATCH))
        self._polling.ask(room, max(until - monotonic(), 0))
        return []

    def is_lost(self, delivery: Delivery) -> bool:
        """Return whether it is not ours any more."""
        held: Lease = delivery.token.receipt
        return self._in_flight.is_lost(delivery) or held.has_run_out(monotonic())

    async def delete(self, deliveries: Sequence[Delivery]) -> None:
        """They are done."""
        done = self._in_flight.settle([delivery for delivery in deliveries if not self.is_lost(delivery)])
        if done:
            self._tell()
            await self._acknowledging.delete(_leases(done), seconds=self._patience)

    async def give_back(self, delivery: Delivery, delay: float) -> None:
        """And what is behind it of its group, which would be out of order now."""
        if not self.is_lost(delivery):
            together = self._lose(delivery)
            async with self._changing:
                await self._acknowledging.show(together, after=delay, seconds=self._patience)

    async def close(self) -> None:
        """Give all back, and go."""
        await self._polling.end(POLL_END_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS), self._changing:
                self._background.cancel()
        self._background.cancel()
        await self._acknowledging.show(_leases(self._in_flight.lose_all()), after=0, seconds=CLOSE_SECONDS)
        await asyncio.gather(self._background, return_exceptions=True)
        await self._client.close()
        self._tell()

    def _came(self, messages: list[Raw]) -> None:
        now = monotonic()
        for raw in messages:
            facts = raw.get("Attributes", {})
            message, source, fault = event_in(raw["Body"], raw.get("MessageAttributes", {}))
            group = facts.get("MessageGroupId") if self._queue.is_fifo else None
            token = InFlightMessage(next(self._numbers), lease(raw["ReceiptHandle"], self._queue.hold, now), group)
            before = int(facts.get("ApproximateReceiveCount", 1)) - 1
            self._in_flight.arrive(Delivery(message, source, self._queue.name, before, fault, token))

    def _lose(self, delivery: Delivery) -> list[Lease]:
        """It is not ours any more, nor is what is behind it of its group; the leases of these."""
        together = self._in_flight.behind(delivery)
        self._in_flight.lost(together)
        self._tell()
        return _leases(together)

    def _let_go(self, shown: str) -> None:
        """SQS does not answer: what was in flight is lost, and the caller told."""
        trouble, self._polling.trouble = self._polling.trouble, None
        self._owed += _leases(self._in_flight.lose_all())
        code, said = getattr(trouble, "code", ""), getattr(trouble, "error", "")
        raise TransportUnavailable(f"No SQS answers at {shown} ({code}): {said}; start it, or wait.")

    async def _keep(self) -> None:
        """Prolong what is in flight, for as long as it is; and notice what is not ours any more."""
        while True:
            await asyncio.sleep(min(self._queue.hold / 6, 1.0))
            now = monotonic()
            self._say_lost(each for each in self._in_flight if each.token.receipt.has_run_out(now))
            async with self._changing:
                begin = monotonic()
                due = [each for each in _leases(self._in_flight) if each.is_to_be_renewed(begin)]
                done, refused = await self._acknowledging.show(due, after=self._queue.hold, seconds=self._patience / 3)
            for each in done:
                each.renew(begin)
            self._say_lost(each for each in self._in_flight if each.token.receipt in refused)
            await self._pay()

    def _say_lost(self, deliveries: Iterable[Delivery]) -> None:
        """They are not ours any more. What is behind them of their groups may go to whoever gets them."""
        self._owed += [behind for each in list(deliveries) for behind in self._lose(each)[1:]]

    async def _pay(self) -> None:
        """Give back what we have no use for, unless its time is over anyway."""
        now = monotonic()
        owed = [each for each in self._owed if not each.has_run_out(now)]
        self._owed = []
        done, refused = await self._acknowledging.show(owed, after=0, seconds=self._patience / 3)
        self._owed += [each for each in owed if each not in done | refused]


def _leases(deliveries: Iterable[Delivery]) -> list[Lease]:
    return [each.token.receipt for each in deliveries]
