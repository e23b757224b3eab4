"""The warehouse: a broker in this process, which does not always answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroom.cli.demo.shop import Order
from postroom.cli.demo.stage import Line, Stage
from postroom.message import Message
from postroom.transport import Envelope, Failed, Outcome, Rejected
from postroom.transports.memory import TOPIC_DEFAULT, MemoryBroker, MemoryPublisher


class Warehouse(MemoryPublisher):
    """Drops Grace's first order twice, and refuses Barbara's until it is told who she is."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._received = MemoryBroker()
        super().__init__(self._received)
        self.knows_barbara = False
        self._drops = 2

    @property
    def delivered(self) -> list[Order]:
        """What arrived, in order."""
        return [_order(message) for message in self._received.topics[TOPIC_DEFAULT]]

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        await asyncio.sleep(self._stage.pace)
        return await super().publish(batch, timeout=timeout)

    def _take(self, envelope: Envelope) -> Outcome:
        order = _order(envelope.message)
        if order.customer == "grace" and self._drops:
            self._drops -= 1
            self._stage.tell(Line("warehouse", order, "TIMEOUT: it is tried again", "yellow"))
            return Failed("TIMEOUT", "the warehouse did not answer")
        if order.customer == "barbara" and not self.knows_barbara:
            self._stage.tell(Line("warehouse", order, "UNKNOWN_CUSTOMER: refused, a dead letter", "red"))
            return Rejected("UNKNOWN_CUSTOMER", "the warehouse does not know barbara")
        self._stage.tell(Line("warehouse", order, "confirmed", "green"))
        return super()._take(envelope)


def _order(message: Message) -> Order:
    return Order(message.key or "", message.data["amount"])
