"""The receiving side: what the receiver's thread fetched is handed out here, and what is done is noted for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.kafka import subscription
from postroom.transports.kafka.offsets import FetchedRecords
from postroom.transports.kafka.receiver import OPEN_SECONDS, KafkaReceiver
from postroom.transports.receiving import ReceivingConsumer, checked_prefetch

PREFETCH_DEFAULT = 500


class KafkaConsumer(ReceivingConsumer):
    """Receive records of topics as one of a group; each partition is one receiver's, and so is each key.

    ```python
    KafkaConsumer("kafka://broker-1:9092,broker-2:9092/orders", group="billing")
    ```

    What was done is committed per partition up to the first that was not, so a crash brings back what was in flight and
    loses nothing. A refused message waits here, with all that is behind it in its key; other keys go on.
    """

    def __init__(self, url: str, *, group: str = "postroom", prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__()
        self._prefetch = checked_prefetch(prefetch)
        self._subscription = subscription.read(url, group)
        self._fetched = FetchedRecords(prefetch)
        self._receiver: KafkaReceiver | None = None

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return ConsumerCapabilities(name="kafka", durable=True, ordered=True, shares=True, counts_redeliveries=False)

    async def open(self) -> None:
        """Look whether the topics are there, and join the group: until it says what is ours, or for a few seconds."""
        if self._receiver is not None:
            return
        # Records of its own: the last receiver may still be leaving.
        self._fetched.lose_all()
        self._fetched = FetchedRecords(self._prefetch)
        receiver = self._receiver = KafkaReceiver(self._subscription, self._fetched, self._teller())
        receiver.start()
        with suppress(TimeoutError):
            # The receiver itself gives up looking for the topics after so long; then the group has as long again.
            async with asyncio.timeout(2 * OPEN_SECONDS):
                while not receiver.is_joined:
                    self._news.clear()
                    self._check(receiver)
                    await self._news.wait()

    def is_lost(self, delivery: Delivery) -> bool:
        return self._fetched.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Noted at once, and committed a little later, together with others: see COMMIT_SECONDS."""
        self._fetched.settle(deliveries)
        self._news.set()

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        self._fetched.refuse(delivery, monotonic() + delay.total_seconds())
        self._news.set()

    async def close(self) -> None:
        """Commit what is done and leave the group, so that others have the partitions at once."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await asyncio.to_thread(receiver.stop)
            self._fetched.lose_all()

    async def _begin(self, until: float) -> None:  # noqa: ARG002 - it joins the group as fast as it can
        if self._receiver is None:
            try:
                await self.open()
            except ConfigError as exc:
                # It was right when we began: somebody may be changing it just now.
                raise TransportUnavailable(str(exc)) from exc

    async def _take(self, limit: int, until: float) -> Sequence[Delivery] | None:  # noqa: ARG002 - it waits for nothing
        receiver = self._receiver
        if receiver is None:
            return None
        self._check(receiver)
        return [] if receiver.is_in_doubt else self._fetched.give(limit, monotonic())

    def _next_due(self, now: float) -> float:
        return self._fetched.next_due(now)

    def _check(self, receiver: KafkaReceiver) -> None:
        """Raise what keeps us from receiving."""
        if receiver.ended is not None:
            self._receiver = None
            raise receiver.ended
        if receiver.away is not None:
            raise TransportUnavailable(f"No Kafka answers at {self._subscription.shown}: {receiver.away}.")
        if (refused := receiver.refused) is not None:
            receiver.refused = None
            raise TransportUnavailable(f"Kafka does not let us read {self._subscription.shown}: {refused}.")

    def _teller(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody wants to know
                loop.call_soon_threadsafe(self._news.set)

        return tell
