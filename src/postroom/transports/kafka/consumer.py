"""The receiving side: what the reader's thread fetched is handed out here, and what is done is noted for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from postroom.clock import monotonic
from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.kafka import subscription
from postroom.transports.kafka.inflight import InFlight
from postroom.transports.kafka.receiver import OPEN_SECONDS, KafkaReceiver

PREFETCH_DEFAULT = 500


class KafkaConsumer:
    """Receive records of topics as one of a group; each partition is one receiver's, and so is each key.

    ```python
    KafkaConsumer("kafka://broker-1:9092,broker-2:9092/orders", group="billing")
    ```

    What was done is committed per partition up to the first that was not, so a crash brings back what was in hand and
    loses nothing. A refused message waits here, with all that is behind it in its key; other keys go on.
    """

    def __init__(self, url: str, *, group: str = "postroom", prefetch: int = PREFETCH_DEFAULT) -> None:
        if prefetch < 1:
            raise ConfigError(f"prefetch is {prefetch}; give 1 or more.", prefetch=prefetch)
        self._subscription = subscription.read(url, group)
        self._prefetch = prefetch
        self._hands = InFlight(prefetch)
        self._reader: KafkaReceiver | None = None
        self._news = asyncio.Event()
        """Something changed: there may be something to receive, or to raise."""

    @property
    def capabilities(self) -> ConsumerCapabilities:
        return ConsumerCapabilities(name="kafka", durable=True, ordered=True, shares=True, counts_redeliveries=False)

    async def open(self) -> None:
        """Look whether the topics are there, and join the group: until it says what is ours, or for a few seconds."""
        if self._reader is not None:
            return
        # Hands of its own: the last reader may still be leaving.
        self._hands.lose_all()
        self._hands = InFlight(self._prefetch)
        reader = self._reader = KafkaReceiver(self._subscription, self._hands, self._teller())
        reader.start()
        with suppress(TimeoutError):
            # The reader itself gives up looking for the topics after so long; then the group has as long again.
            async with asyncio.timeout(2 * OPEN_SECONDS):
                while not reader.is_joined:
                    self._news.clear()
                    self._check(reader)
                    await self._news.wait()

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        until = monotonic() + wait.total_seconds()
        if self._reader is None:
            try:
                await self.open()
            except ConfigError as exc:
                # It was right when we began: somebody may be changing it just now.
                raise TransportUnavailable(str(exc)) from exc
        while True:
            self._news.clear()
            now = monotonic()
            if taken := self._take(limit, now):
                return taken
            if now >= until:
                return []
            with suppress(TimeoutError):
                async with asyncio.timeout(min(until, self._hands.next_due(now)) - now):
                    await self._news.wait()

    def is_lost(self, delivery: Delivery) -> bool:
        return self._hands.is_lost(delivery)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Noted at once, and committed a little later, together with others: see COMMIT_SECONDS."""
        for delivery in deliveries:
            self._hands.finish(delivery)
        self._news.set()

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        self._hands.give_back(delivery, monotonic() + delay.total_seconds())
        self._news.set()

    async def terminate(self, delivery: Delivery) -> None:
        await self.ack([delivery])

    async def close(self) -> None:
        """Commit what is done and leave the group, so that others have the partitions at once."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await asyncio.to_thread(reader.stop)
            self._hands.lose_all()

    def _take(self, limit: int, now: float) -> Sequence[Delivery]:
        reader = self._reader
        if reader is None:
            return []  # closed meanwhile
        self._check(reader)
        return [] if reader.is_in_doubt else self._hands.take(limit, now)

    def _check(self, reader: KafkaReceiver) -> None:
        """Raise what keeps us from receiving."""
        if reader.ended is not None:
            self._reader = None
            raise reader.ended
        if reader.away is not None:
            raise TransportUnavailable(f"No Kafka answers at {self._subscription.shown}: {reader.away}.")
        if (refused := reader.refused) is not None:
            reader.refused = None
            raise TransportUnavailable(f"Kafka does not let us read {self._subscription.shown}: {refused}.")

    def _teller(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody wants to know
                loop.call_soon_threadsafe(self._news.set)

        return tell
