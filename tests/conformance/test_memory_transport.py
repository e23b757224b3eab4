"""The transport in memory keeps the contract, and whoever breaks it is caught."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence

import pytest

from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts.publisher import Rig
from postroom.testing.saboteurs.publisher import TransportSaboteur, all_transport_saboteurs
from postroom.transports.memory import MemoryBroker, MemoryPublisher


class InMemory:
    """The broker, seen from the test."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(known=frozenset({"orders"}), largest=1000)

    def rig(self, publisher: type[MemoryPublisher] = MemoryPublisher) -> Rig:
        return Rig(
            publisher=publisher(self.broker, topic="orders"),
            topic="orders",
            unknown_topic="nowhere",
            too_large=1001,
            wrong={"topic": publisher(self.broker, topic="nowhere")},
            can_be_full=True,
            can_be_cancelled=True,
        )

    async def received(self) -> Sequence[Message]:
        return self.broker.topics["orders"]

    async def go_away(self) -> None:
        self.broker.away = True

    async def come_back(self) -> None:
        self.broker.away = self.broker.cancels = False

    async def cancel_inside(self) -> None:
        self.broker.cancels = True

    async def fill(self) -> None:
        self.broker.full = True

    async def make_room(self) -> None:
        self.broker.full = False


class TestMemoryTransport(PublisherContract):
    @pytest.fixture
    def broker(self) -> InMemory:
        return InMemory()

    @pytest.fixture
    async def rig(self, broker: InMemory) -> Rig:
        rig = broker.rig()
        await rig.publisher.open()
        return rig


@pytest.mark.parametrize("saboteur", all_transport_saboteurs(), ids=lambda saboteur: saboteur.__name__)
async def test_every_saboteur_is_caught_by_its_case(saboteur: type[TransportSaboteur]) -> None:
    case = dict(inspect.getmembers(PublisherContract))[saboteur.caught_by]
    broker = InMemory()
    with pytest.raises((AssertionError, ValueError, asyncio.CancelledError)):
        await case(PublisherContract(), broker.rig(saboteur), broker)
