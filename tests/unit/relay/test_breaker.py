"""A gate shuts while its broker is away, lets one probe through, and opens again after any answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroom.clock import monotonic
from postroom.contracts.transport import (
    KEY_STOPPED,
    NOT_STARTED,
    Envelope,
    Failed,
    Outcome,
    Rejected,
    Sent,
    Unavailable,
)
from postroom.errors import TransportUnavailable
from postroom.events import BatchPublished, Event, Listeners, RoutePaused, RouteResumed
from postroom.message import Message
from postroom.relay.breaker import LONGEST_PAUSE_SECONDS, Breakers, grace
from postroom.relay.routes import Route, Routes
from postroom.transports.memory import MemoryBroker, MemoryPublisher

SECOND = timedelta(seconds=1)
BATCH = [Envelope(Message("order.paid"))]


class Answering(MemoryPublisher):
    """Answers what it is told to."""

    def __init__(self, *answers: Outcome) -> None:
        super().__init__(MemoryBroker())
        self.answers = list(answers)
        self.opened = 0

    async def open(self) -> None:
        self.opened += 1
        await super().open()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        await asyncio.sleep(0)
        return [self.answers.pop(0)] * len(batch)


def breakers(*publishers: MemoryPublisher, heard: list[Event] | None = None) -> tuple[Breakers, list[Route]]:
    routes = [Route(to=publisher, name=f"route-{number}") for number, publisher in enumerate(publishers)]
    return Breakers(Routes(routes), Listeners((heard if heard is not None else []).append)), routes


class Mute(Exception):
    """What it says can only be had by an error."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_error_without_words_is_an_outcome_like_any_other() -> None:
    class Broken(MemoryPublisher):
        async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
            raise Mute

    class Shut(MemoryPublisher):
        async def open(self) -> None:
            raise Mute

    all_gates, (broken, shut) = breakers(Broken(MemoryBroker()), Shut(MemoryBroker()))
    (outcome,) = await all_gates.of(broken).publish(BATCH, SECOND)
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("Mute")
    (outcome,) = await all_gates.of(shut).publish(BATCH, SECOND)
    assert isinstance(outcome, Unavailable)
    assert outcome.error.startswith("Mute")


async def test_a_broker_that_is_away_shuts_its_gate_longer_each_time_and_any_answer_opens_it() -> None:
    heard: list[Event] = []
    all_gates, (route,) = breakers(Answering(Unavailable(), Unavailable("GONE"), Rejected("NO"), Sent()), heard=heard)
    gate = all_gates.of(route)
    assert not gate.shut_for(monotonic())
    await gate.publish(BATCH, SECOND)
    first = gate.shut_for(monotonic())
    await gate.publish(BATCH, SECOND)
    assert 0 < first < gate.shut_for(monotonic())
    assert all_gates.shut_for(monotonic())
    assert all_gates.away()
    await gate.publish(BATCH, SECOND)
    assert not all_gates.away()
    await gate.publish(BATCH, SECOND)
    paused, again, resumed, published = heard
    assert isinstance(paused, RoutePaused)
    assert isinstance(again, RoutePaused)
    assert again.code == "GONE"
    assert paused.delay is not None
    assert again.delay is not None
    assert again.delay > paused.delay
    assert isinstance(resumed, RouteResumed)
    assert isinstance(published, BatchPublished)
    assert published.count == 1


async def test_batches_that_meet_the_same_outage_together_count_it_once() -> None:
    heard: list[Event] = []
    all_gates, (route,) = breakers(Answering(*[Unavailable()] * 4), heard=heard)
    await asyncio.gather(*(all_gates.of(route).publish(BATCH, SECOND) for _ in range(4)))
    assert len(heard) == 1


async def test_what_was_not_tried_says_nothing_of_the_broker() -> None:
    all_gates, (route,) = breakers(Answering(KEY_STOPPED))
    await all_gates.of(route).publish(BATCH, SECOND)
    assert not all_gates.away()


async def test_what_the_broker_asks_for_is_granted_up_to_a_limit() -> None:
    all_gates, (route,) = breakers(Answering(Unavailable(retry_after=timedelta(hours=1))))
    await all_gates.of(route).publish(BATCH, SECOND)
    assert LONGEST_PAUSE_SECONDS - 5 < all_gates.of(route).shut_for(monotonic()) <= LONGEST_PAUSE_SECONDS


async def test_one_gate_shut_leaves_the_other_open() -> None:
    all_gates, (away, there) = breakers(Answering(Unavailable()), Answering(Sent()))
    await all_gates.of(away).publish(BATCH, SECOND)
    assert all_gates.of(away).shut_for(monotonic())
    assert not all_gates.of(there).shut_for(monotonic())
    assert not all_gates.shut_for(monotonic())


async def test_a_gate_that_is_shut_until_a_person_acts_is_never_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    gone = Unavailable("ENDPOINT_GONE", "410 Gone", until_told=True)
    all_gates, (route, _) = breakers(Answering(gone, gone, Sent()), Answering(Sent()), heard=heard)
    gate = all_gates.of(route)
    await gate.publish(BATCH, SECOND)
    assert gate.is_shut
    assert gate.shut_for(monotonic() + 365 * 24 * 3600)
    # What was under way when it was shut comes back, one way or the other: it stays shut, and it is told once.
    await gate.publish(BATCH, SECOND)
    await gate.publish(BATCH, SECOND)
    assert gate.is_shut
    assert all_gates.shut == ("route-0",)
    (paused,) = (event for event in heard if isinstance(event, RoutePaused))
    assert (paused.code, paused.delay) == ("ENDPOINT_GONE", None)
    assert not [event for event in heard if isinstance(event, RouteResumed)]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "route-0" in record.getMessage()
    assert "restart" in record.getMessage()


async def test_a_start_is_a_persons_word_and_asks_a_gate_that_was_shut_once_more() -> None:
    gone = Unavailable("ENDPOINT_GONE", "410 Gone", until_told=True)
    all_gates, (route,) = breakers(Answering(gone, Sent()))
    await all_gates.of(route).publish(BATCH, SECOND)
    await all_gates.open(SECOND)
    assert not all_gates.of(route).is_shut
    assert not all_gates.of(route).shut_for(monotonic())
    assert all_gates.away(), "one message is enough to ask"


async def test_two_routes_to_one_broker_share_its_gate() -> None:
    publisher = Answering(Unavailable())
    all_gates, (one, other) = breakers(publisher, publisher)
    assert all_gates.of(one) is all_gates.of(other)
    assert len(all_gates) == 1


async def test_a_broker_away_at_the_start_is_opened_when_it_is_asked_again() -> None:
    publisher = Answering(Sent())
    publisher._broker.away = True
    all_gates, (route,) = breakers(publisher)
    await all_gates.open(SECOND)
    (answer,) = await all_gates.of(route).publish(BATCH, SECOND)
    assert isinstance(answer, Unavailable)
    publisher._broker.away = False
    (answer,) = await all_gates.of(route).publish(BATCH, SECOND)
    assert isinstance(answer, Sent)
    assert publisher.opened == 3


async def test_a_start_that_is_cancelled_leaves_no_broker_open() -> None:
    connecting = asyncio.Event()

    class Hanging(Answering):
        async def open(self) -> None:
            connecting.set()
            await asyncio.Event().wait()

    class Noting(Answering):
        is_open = False

        async def open(self) -> None:
            self.is_open = True

        async def close(self) -> None:
            self.is_open = False

    open_one = Noting()
    all_gates, _ = breakers(open_one, Hanging())
    starting = asyncio.create_task(all_gates.open(SECOND))
    await connecting.wait()
    assert open_one.is_open
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not open_one.is_open


async def test_a_connection_that_took_the_time_for_sending_sends_nothing_now() -> None:
    """What is begun with too little time left would be cut off in the middle, and pay an attempt."""

    class Slow(Answering):
        async def open(self) -> None:
            if self.opened:
                await asyncio.sleep(0.5)
            await super().open()

    publisher = Slow(Sent())
    publisher._broker.away = True
    all_gates, (route,) = breakers(publisher)
    await all_gates.open(SECOND)
    publisher._broker.away = False
    assert list(await all_gates.of(route).publish(BATCH, SECOND)) == [NOT_STARTED]
    assert list(await all_gates.of(route).publish(BATCH, SECOND)) == [Sent()]


async def test_a_publisher_that_raises_has_an_unknown_effect_but_not_if_it_never_opened() -> None:
    class Raising(Answering):
        async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
            raise RuntimeError("a bug")

    class Closed(Answering):
        async def open(self) -> None:
            raise TransportUnavailable("It is away.")

    all_gates, (raising, closed) = breakers(Raising(), Closed(Sent()))
    (answer,) = await all_gates.of(raising).publish(BATCH, SECOND)
    assert isinstance(answer, Failed)
    assert answer.unknown
    (answer,) = await all_gates.of(closed).publish(BATCH, SECOND)
    assert isinstance(answer, Unavailable)


def test_a_lease_of_two_send_timeouts_has_room_for_a_send_and_its_grace() -> None:
    """A lease is renewed each third of it: what is left then must be longer than a send with its grace (R16)."""
    for milliseconds in (1, 100, 2_500, 60_000, 3_600_000):
        timeout = timedelta(milliseconds=milliseconds)
        assert timeout + grace(timeout) < 2 * timeout * 2 / 3
