"""The receiving side, as the contract wants it; `desk` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from postroom.contracts.transport import ConsumerCapabilities, Delivery
from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.sqs.connection import BATCH, SqsConnection
from postroom.transports.sqs.polling import POLLS_MAX
from postroom.transports.sqs.receiver import SqsReceiver
from postroom.transports.sqs.url import EXAMPLE, is_fifo, read

PREFETCH_DEFAULT = 100


class SqsConsumer:
    """See `postroom.contracts.transport` for what each method promises.

    ```python
    SqsConsumer("sqs://eu-central-1/orders.fifo", prefetch=50)
    ```

    A queue is one group: whoever receives from it shares its messages. For several groups give each its own queue."""

    def __init__(self, url: str, *, prefetch: int = PREFETCH_DEFAULT) -> None:
        self._address = read(url)
        if self._address.queue is None:
            raise ConfigError(f"{self._address.shown} names no queue to receive from; give one like {EXAMPLE}.")
        if prefetch < 1:
            raise ConfigError(f"prefetch is {prefetch}; give 1 or more.", prefetch=prefetch)
        self._name, self._prefetch = self._address.queue, prefetch
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
        self._receiver = SqsReceiver(client, queue, self._prefetch)

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        if self._receiver is None:
            raise TransportUnavailable(f"{self._address.shown} is not open; call `await consumer.open()` first.")
        if limit < 1:
            return []
        return await self._receiver.receive(limit, wait.total_seconds(), self._address.shown)

    def is_lost(self, delivery: Delivery) -> bool:
        return self._receiver is None or not self._receiver.has(delivery.token)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        if self._receiver is not None:
            await self._receiver.delete([delivery.token for delivery in deliveries])

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        if self._receiver is not None:
            await self._receiver.give_back(delivery.token, delay.total_seconds())

    async def terminate(self, delivery: Delivery) -> None:
        await self.ack([delivery])

    async def close(self) -> None:
        desk, self._receiver = self._receiver, None
        if desk is not None:
            await desk.close()
