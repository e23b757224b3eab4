"""What a transport's sending side must do.

An implementation brings a *rig*: the publisher, a look at what was received, and, as far as the broker can be made to,
the faults. A case that needs a fault the rig cannot make is skipped, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import pytest

from postroom.contracts.transport import (
    KEY_STOPPED,
    NOT_STARTED,
    Envelope,
    Failed,
    Outcome,
    Publisher,
    Rejected,
    Sent,
    Unavailable,
)
from postroom.errors import TransportRefused, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts._case import a_message, refused_by

TIMEOUT = timedelta(seconds=10)


@dataclass(kw_only=True)
class Rig:
    """A publisher, and what a case needs to know of its broker."""

    publisher: Publisher
    topic: str
    """A topic that is there."""
    unknown_topic: str | None = None
    """One that is not, where the broker refuses such."""
    too_large: int | None = None
    """A body of so many bytes is refused."""
    wrong: Mapping[str, Publisher] = field(default_factory=dict)
    """Publishers, not opened, at the same broker, whose URL is wrong; by what is wrong with it: a password, a topic, a host."""
    can_be_full: bool = False
    """The broker can be made to have no room: `fill` and `make_room`."""
    can_be_cancelled: bool = False
    """What a send waits for can be cancelled from inside: `cancel_inside` and `come_back`."""


class Broker(Protocol):
    """The broker behind a rig, seen from the test."""

    async def received(self) -> Sequence[Message]:
        """Every message that arrived, in order."""

    async def go_away(self) -> None:
        """Stop answering."""

    async def come_back(self) -> None:
        """Answer again."""

    async def fill(self) -> None:
        """Answer, but take no more messages for now. Only asked where the rig `can_be_full`."""

    async def make_room(self) -> None:
        """Take messages again."""

    async def cancel_inside(self) -> None:
        """Let a CancelledError come out of what a send waits for, though nobody cancelled the send. Only asked where the rig
        `can_be_cancelled`."""


class PublisherContract:
    """Subclass it, provide the fixtures `rig` (opened) and `broker`, run pytest."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def publish(self, rig: Rig, *messages: Message, topic: str | None = None) -> Sequence[Outcome]:
        batch = [Envelope(message, topic or rig.topic) for message in messages]
        return await rig.publisher.publish(batch, timeout=TIMEOUT)

    async def test_a_sent_message_arrived_as_it_was_given(self, rig: Rig, broker: Broker) -> None:
        message = a_message(key="a", headers={"x-tenant": "acme"}, correlation_id="c-1")
        (outcome,) = await self.publish(rig, message)
        assert isinstance(outcome, Sent), f"expected Sent, got {outcome}"
        (arrived,) = await broker.received()
        assert (arrived.id, arrived.type, arrived.key, arrived.body) == (message.id, message.type, "a", message.body)
        assert arrived.headers.get("x-tenant") == "acme"
        assert arrived.correlation_id == "c-1"

    async def test_an_outcome_for_each_message_in_the_same_order(self, rig: Rig, broker: Broker) -> None:
        messages = [a_message(key=f"k{number}") for number in range(20)]
        outcomes = await self.publish(rig, *messages)
        assert [type(outcome) for outcome in outcomes] == [Sent] * 20
        assert {arrived.id for arrived in await broker.received()} == {message.id for message in messages}

    async def test_messages_of_a_key_arrive_in_order(self, rig: Rig, broker: Broker) -> None:
        messages = [a_message(key="a", data=number) for number in range(50)]
        await self.publish(rig, *messages)
        assert [arrived.data for arrived in await broker.received()] == list(range(50))

    async def test_an_empty_batch_is_an_empty_answer(self, rig: Rig, broker: Broker) -> None:
        assert list(await self.publish(rig)) == []
        assert list(await broker.received()) == []

    async def test_a_topic_that_is_not_there_is_a_rejection(self, rig: Rig, broker: Broker) -> None:
        if rig.unknown_topic is None:
            pytest.skip("this broker makes a topic when one is named")
        (outcome,) = await self.publish(rig, a_message(), topic=rig.unknown_topic)
        assert isinstance(outcome, Rejected)
        assert list(await broker.received()) == []

    async def test_a_body_that_is_too_large_is_a_rejection_and_takes_no_other_with_it(
        self, rig: Rig, broker: Broker
    ) -> None:
        if rig.too_large is None:
            pytest.skip("this broker has no limit of its own")
        large, small = a_message(key="a", body=b"x" * rig.too_large), a_message(key="b")
        outcomes = await self.publish(rig, large, small)
        assert [type(outcome) for outcome in outcomes] == [Rejected, Sent]
        assert [arrived.id for arrived in await broker.received()] == [small.id]

    async def test_after_a_failure_nothing_more_of_that_key_is_sent(self, rig: Rig, broker: Broker) -> None:
        if rig.too_large is None:
            pytest.skip("this broker has no limit of its own")
        large = a_message(key="a", body=b"x" * rig.too_large)
        behind, other = a_message(key="a"), a_message(key="b")
        outcomes = await self.publish(rig, large, behind, other)
        assert [isinstance(outcome, Sent) for outcome in outcomes] == [False, False, True]
        assert [arrived.id for arrived in await broker.received()] == [other.id]

    async def test_messages_without_a_key_do_not_stop_each_other(self, rig: Rig, broker: Broker) -> None:
        if rig.too_large is None:
            pytest.skip("this broker has no limit of its own")
        large, small = a_message(body=b"x" * rig.too_large), a_message()
        outcomes = await self.publish(rig, large, small)
        assert [isinstance(outcome, Sent) for outcome in outcomes] == [False, True]
        assert [arrived.id for arrived in await broker.received()] == [small.id]

    async def test_a_broker_that_is_away_is_unavailable_and_works_again_when_it_is_back(
        self, rig: Rig, broker: Broker
    ) -> None:
        await broker.go_away()
        (outcome,) = await self.publish(rig, a_message(key="a"))
        assert isinstance(outcome, Unavailable), f"expected Unavailable, got {outcome}"
        await broker.come_back()
        (outcome,) = await self.publish(rig, a_message(key="a"))
        assert isinstance(outcome, Sent), f"expected Sent, got {outcome}"

    async def test_a_broker_that_is_away_at_the_start_is_waited_for(self, rig: Rig, broker: Broker) -> None:
        """The world's fault: it passes by itself, so it is an outage and no mistake."""
        await rig.publisher.close()
        await broker.go_away()
        # Or nothing at all, where nobody is asked before there is something to send.
        with suppress(TransportUnavailable):
            await rig.publisher.open()
        await broker.come_back()
        await rig.publisher.open()
        (outcome,) = await self.publish(rig, a_message(key="a"))
        assert isinstance(outcome, Sent), f"expected Sent, got {outcome}"

    async def test_what_is_wrong_with_the_url_is_said_at_the_start(self, rig: Rig, broker: Broker) -> None:  # noqa: ARG002
        """The route's fault: it does not pass by itself, so a person must hear of it, though there is nothing to send."""
        if not rig.wrong:
            pytest.skip("there is no wrong URL of this transport here")
        for what, publisher in rig.wrong.items():
            try:
                said = str(await refused_by(publisher.open()))
            finally:
                await publisher.close()
            assert ";" in said or ":" in said, f"{what}: there is no remedy in {said}"

    async def test_what_is_wrong_with_the_url_costs_no_message_an_attempt(self, rig: Rig, broker: Broker) -> None:
        """It was right once, or the relay would not have started: so it is waited for, until somebody has fixed it."""
        if not rig.wrong:
            pytest.skip("there is no wrong URL of this transport here")
        for what, publisher in rig.wrong.items():
            with suppress(TransportRefused):
                await publisher.open()
            outcomes = await publisher.publish([Envelope(a_message(key="a"))], timeout=TIMEOUT)
            await publisher.close()
            assert [type(outcome) for outcome in outcomes] == [Unavailable], (
                f"{what}: expected Unavailable, got {outcomes}"
            )
        assert list(await broker.received()) == []

    async def test_a_broker_that_is_full_is_unavailable_and_takes_more_when_there_is_room(
        self, rig: Rig, broker: Broker
    ) -> None:
        """Back-pressure is the broker's state, and no message's fault: the route pauses, and nobody spends an attempt."""
        if not rig.can_be_full:
            pytest.skip("this broker cannot be made full")
        await broker.fill()
        for _ in range(2):  # also when it was full before
            outcomes = await self.publish(rig, a_message(key="a"), a_message(key="a"), a_message())
            assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3, f"expected Unavailable, got {outcomes}"
            codes = {outcome.code for outcome in outcomes if isinstance(outcome, Unavailable)}
            assert codes - {KEY_STOPPED.code, NOT_STARTED.code}, f"nothing says that the broker is full: {codes}"
        await broker.make_room()
        (outcome,) = await self.publish(rig, a_message(key="a"))
        assert isinstance(outcome, Sent), f"expected Sent, got {outcome}"

    async def test_what_is_cancelled_from_inside_is_a_failure_of_that_message(self, rig: Rig, broker: Broker) -> None:
        """A CancelledError that nobody asked for must not come out of `publish`: it would end the task that holds the lanes
        (R26). Its effect is unknown, so the message failed, and whatever is behind it waits."""
        if not rig.can_be_cancelled:
            pytest.skip("nothing that this transport waits for can be cancelled from inside")
        await broker.cancel_inside()
        outcomes = await self.publish(rig, a_message(key="a"), a_message(key="a"))
        assert [type(outcome) for outcome in outcomes] == [Failed, Unavailable], f"expected Failed, got {outcomes}"
        assert await broker.received() == []
        await broker.come_back()
        (outcome,) = await self.publish(rig, a_message(key="a"))
        assert isinstance(outcome, Sent), f"expected Sent, got {outcome}"

    async def test_closing_twice_is_fine(self, rig: Rig, broker: Broker) -> None:  # noqa: ARG002 - the rig needs it
        await rig.publisher.close()
        await rig.publisher.close()
