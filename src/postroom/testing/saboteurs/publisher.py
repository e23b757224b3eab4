"""Transports that break one promise each, and the case of the contract that must catch it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from postroom.contracts.transport import NOT_STARTED, Envelope, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.errors import TransportRefused, TransportUnavailable
from postroom.transports.memory import MemoryPublisher


class TransportSaboteur(MemoryPublisher):
    """The memory transport with one thing wrong."""

    caught_by: ClassVar[str]


class SaysSentTooEarly(TransportSaboteur):
    caught_by = "test_a_broker_that_is_away_is_unavailable_and_works_again_when_it_is_back"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        await super().publish(batch, timeout=timeout)
        return [Sent() for _ in batch]


class CallsAnOutageAFailure(TransportSaboteur):
    caught_by = "test_a_broker_that_is_away_is_unavailable_and_works_again_when_it_is_back"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        outcomes = await super().publish(batch, timeout=timeout)
        return [Failed("AWAY") if isinstance(outcome, Unavailable) else outcome for outcome in outcomes]


class CallsAFullBrokerAFailure(TransportSaboteur):
    caught_by = "test_a_broker_that_is_full_is_unavailable_and_takes_more_when_there_is_room"

    def _take(self, envelope: Envelope) -> Outcome:
        outcome = super()._take(envelope)
        return Failed("FULL") if isinstance(outcome, Unavailable) and self._broker.full else outcome


class SaysOfAFullBrokerOnlyThatItWasNotTried(TransportSaboteur):
    caught_by = "test_a_broker_that_is_full_is_unavailable_and_takes_more_when_there_is_room"

    def _take(self, envelope: Envelope) -> Outcome:
        outcome = super()._take(envelope)
        return NOT_STARTED if isinstance(outcome, Unavailable) and self._broker.full else outcome


class LetsACancellationOut(TransportSaboteur):
    caught_by = "test_what_is_cancelled_from_inside_is_a_failure_of_that_message"

    def _take(self, envelope: Envelope) -> Outcome:
        if self._broker.cancels:
            raise asyncio.CancelledError
        return super()._take(envelope)


class TakesAWrongUrlForAnOutage(TransportSaboteur):
    caught_by = "test_what_is_wrong_with_the_url_is_said_at_the_start"

    async def open(self) -> None:
        try:
            await super().open()
        except TransportRefused as exc:
            raise TransportUnavailable(str(exc)) from exc


class TakesAnOutageForAWrongUrl(TransportSaboteur):
    caught_by = "test_a_broker_that_is_away_at_the_start_is_waited_for"

    async def open(self) -> None:
        try:
            await super().open()
        except TransportUnavailable as exc:
            raise TransportRefused(str(exc)) from exc


class BlamesTheMessageForTheUrl(TransportSaboteur):
    caught_by = "test_what_is_wrong_with_the_url_costs_no_message_an_attempt"

    def _take(self, envelope: Envelope) -> Outcome:
        return super()._take(Envelope(envelope.message, envelope.topic or self._topic))


class CarriesOnAfterAFailure(TransportSaboteur):
    caught_by = "test_after_a_failure_nothing_more_of_that_key_is_sent"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:  # noqa: ARG002 - it never waits
        return [self._take(envelope) for envelope in batch]


class StopsTheWholeBatch(TransportSaboteur):
    caught_by = "test_a_body_that_is_too_large_is_a_rejection_and_takes_no_other_with_it"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for envelope in batch:
            sent_so_far = all(isinstance(outcome, Sent) for outcome in outcomes)
            outcomes += await super().publish([envelope], timeout=timeout) if sent_so_far else [Unavailable()]
        return outcomes


class StopsMessagesWithoutAKey(TransportSaboteur):
    caught_by = "test_messages_without_a_key_do_not_stop_each_other"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        keyed = [
            Envelope(envelope.message.replace(key=envelope.message.key or "none"), envelope.topic) for envelope in batch
        ]
        return await super().publish(keyed, timeout=timeout)


class SwallowsTheUnroutable(TransportSaboteur):
    caught_by = "test_a_topic_that_is_not_there_is_a_rejection"

    def _take(self, envelope: Envelope) -> Outcome:
        outcome = super()._take(envelope)
        return Sent() if isinstance(outcome, Rejected) and outcome.code == "UNROUTABLE" else outcome


class DropsTheHeaders(TransportSaboteur):
    caught_by = "test_a_sent_message_arrived_as_it_was_given"

    def _take(self, envelope: Envelope) -> Outcome:
        return super()._take(Envelope(envelope.message.replace(headers={}), envelope.topic))


class SendsBackwards(TransportSaboteur):
    caught_by = "test_messages_of_a_key_arrive_in_order"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return (await super().publish(batch[::-1], timeout=timeout))[::-1]


class AnswersForTheFirstAlone(TransportSaboteur):
    caught_by = "test_an_outcome_for_each_message_in_the_same_order"

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return (await super().publish(batch, timeout=timeout))[:1]


def all_transport_saboteurs() -> list[type[TransportSaboteur]]:
    """Every one of them."""
    return TransportSaboteur.__subclasses__()
