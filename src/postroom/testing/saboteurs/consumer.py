"""Receivers that break one promise each, and the case of the contract that must catch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from postroom.contracts.transport import Delivery
from postroom.errors import TransportRefused, TransportUnavailable
from postroom.transports.memory import MemoryConsumer


class ConsumerSaboteur(MemoryConsumer):
    """The receiver of the broker in memory with one thing wrong."""

    caught_by: ClassVar[str]


class AcknowledgesAtOnce(ConsumerSaboteur):
    caught_by = "test_what_was_in_hand_goes_back_when_a_receiver_leaves_and_comes_first"

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        deliveries = await super().receive(limit, wait=wait)
        await self.ack(deliveries)
        return deliveries


class TakesAnOutageForAWrongUrl(ConsumerSaboteur):
    caught_by = "test_a_broker_that_is_away_at_the_start_is_no_mistake_in_the_url"

    async def open(self) -> None:
        try:
            await super().open()
        except TransportUnavailable as exc:
            raise TransportRefused(str(exc)) from exc


class TakesAWrongUrlForAnOutage(ConsumerSaboteur):
    caught_by = "test_what_is_wrong_with_the_url_is_said_at_the_start"

    async def open(self) -> None:
        try:
            await super().open()
        except TransportRefused as exc:
            raise TransportUnavailable(str(exc)) from exc


class AcknowledgesAllBefore(ConsumerSaboteur):
    caught_by = "test_acknowledged_out_of_turn_nothing_is_lost"

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        last = max(delivery.token.position for delivery in deliveries)
        await super().ack([held for place, held in self._held.items() if place <= last])


class NeverAcknowledges(ConsumerSaboteur):
    caught_by = "test_what_was_acknowledged_does_not_come_again"

    async def ack(self, deliveries: Sequence[Delivery]) -> None:  # noqa: ARG002 - it is broken
        return None


class DropsWhatIsRefused(ConsumerSaboteur):
    caught_by = "test_a_refused_message_holds_up_no_other_key_for_ever"

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:  # noqa: ARG002 - it is broken
        await self.ack([delivery])


class GivesBackWhatIsTerminated(ConsumerSaboteur):
    caught_by = "test_what_was_terminated_never_comes_again"

    async def terminate(self, delivery: Delivery) -> None:
        await self.nack(delivery)


class KnowsNoPrefetch(ConsumerSaboteur):
    caught_by = "test_no_more_is_in_hand_than_the_prefetch"

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        self._prefetch = 1_000
        return await super().receive(limit, wait=wait)


class KnowsNoLimit(ConsumerSaboteur):
    caught_by = "test_no_more_is_received_than_was_asked_for"

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        return await super().receive(limit + 1, wait=wait)


class SharesBetweenGroups(ConsumerSaboteur):
    caught_by = "test_every_group_has_every_message"

    async def open(self) -> None:
        self._name = "all"

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        await self.open()
        return await super().receive(limit, wait=wait)


class TurnsTheOrder(ConsumerSaboteur):
    caught_by = "test_messages_of_a_key_are_received_in_order"

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        return list(await super().receive(limit, wait=wait))[::-1]


class TakesAnyName(ConsumerSaboteur):
    caught_by = "test_a_name_that_cannot_be_stored_is_no_event_of_ours"

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        return [replace(each, fault=None) for each in await super().receive(limit, wait=wait)]


def all_consumer_saboteurs() -> list[type[ConsumerSaboteur]]:
    """Every one of them."""
    return ConsumerSaboteur.__subclasses__()
