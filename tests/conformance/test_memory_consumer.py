"""The receiving side of the broker in memory keeps the contract, and whoever breaks it is caught."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest

from postroom.contracts.transport import Consumer
from postroom.message import Message
from postroom.testing.contracts import ConsumerContract
from postroom.testing.saboteurs.consumer import ConsumerSaboteur, all_consumer_saboteurs
from postroom.transports.memory import MemoryBroker, MemoryConsumer


class InMemory:
    """A topic, seen from the test."""

    longest_hold = None

    def __init__(self, kind: type[MemoryConsumer] = MemoryConsumer) -> None:
        self.broker, self.kind = MemoryBroker(), kind

    async def consumer(self, group: str = "billing", *, prefetch: int | None = None) -> MemoryConsumer:
        return self.kind(self.broker, "orders", group=group, prefetch=prefetch or 100)

    def wrong(self) -> dict[str, Consumer]:
        self.broker.known = frozenset({"orders"})
        return {"topic": self.kind(self.broker, "nowhere", group="billing")}

    async def publish(self, *messages: Message) -> None:
        self.broker.topics["orders"] += messages

    async def publish_foreign(self) -> bool:
        return False

    async def vanish(self, consumer: Any) -> bool:
        await consumer.close()  # there is nothing else to lose in one process
        return True

    async def go_away(self) -> bool:
        self.broker.away = True
        return True

    async def come_back(self) -> None:
        self.broker.away = False


class TestMemoryConsumer(ConsumerContract):
    @pytest.fixture
    def bench(self) -> InMemory:
        return InMemory()


@pytest.mark.parametrize("saboteur", all_consumer_saboteurs(), ids=lambda saboteur: saboteur.__name__)
async def test_every_saboteur_is_caught_by_its_case(
    saboteur: type[ConsumerSaboteur], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.testing.contracts.consumer.PATIENCE", timedelta(seconds=0.5))
    case = dict(inspect.getmembers(ConsumerContract))[saboteur.caught_by]
    with pytest.raises((AssertionError, ValueError)):
        await case(ConsumerContract(), InMemory(saboteur))
