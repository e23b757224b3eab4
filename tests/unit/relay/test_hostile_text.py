"""What a broker or a stranger's function says arrives in logs, events and tables as text that can be shown."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroom.config.values import RelayConfig
from postroom.contracts.ops import Query
from postroom.contracts.outbox import ERROR_MAX
from postroom.contracts.outbox import Buried as BuriedVerdict
from postroom.contracts.transport import Envelope, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.events import Event, Listeners, MessageBuried, MessageRetried, RoutePaused
from postroom.message import Message
from postroom.relay import Relay, Route
from postroom.relay.breaker import Breakers, cleaned
from postroom.relay.routes import Routes
from postroom.relay.verdict import unrouted
from postroom.retry import RetryPolicy, Table
from postroom.stores.memory import MemoryStore
from postroom.telemetry.logs import EventLogger
from postroom.transports.memory import MemoryBroker, MemoryPublisher

HOSTILE = "no\n2026-11-18 ERROR forged \x1b[2J\x00 \u202eturned \udc80 \x9b1m"
HUGE = HOSTILE + "x" * 50_000_000
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ud800-\udfff]")
"""What must not arrive anywhere. A newline may stand in what is stored, and nowhere else."""
SECOND = timedelta(seconds=1)
ANSWERS: list[Outcome] = [
    Failed("BAD\x1b[2J", HUGE),
    Rejected("BAD\nCODE", HUGE),
    Unavailable("AWAY\x00", HUGE),
    Unavailable("GONE", HUGE, until_told=True),
]


class Answering(MemoryPublisher):
    def __init__(self, *answers: Outcome) -> None:
        super().__init__(MemoryBroker())
        self.answers = answers

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return [self.answers[index % len(self.answers)] for index, _ in enumerate(batch)]


def assert_one_line(text: str, limit: int = 1_000) -> None:
    assert not RAW.search(text)
    assert "\n" not in text
    assert len(text) <= limit


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
async def test_what_a_transport_says_is_cleaned_where_it_comes_in(
    answer: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    routes = Routes([Route(to=Answering(answer))])
    breakers = Breakers(routes, Listeners(heard.append, EventLogger()))
    with caplog.at_level(logging.DEBUG):
        (outcome,) = await breakers.of(routes.first).publish([Envelope(Message("order.paid"))], SECOND)
    assert not isinstance(outcome, Sent)
    assert_one_line(outcome.code)
    assert not RAW.search(outcome.error)
    assert len(outcome.error) <= ERROR_MAX
    for event in heard:
        assert isinstance(event, RoutePaused)
        assert_one_line(event.error)
    for record in caplog.records:
        assert_one_line(record.getMessage())


@pytest.mark.parametrize("answer", ANSWERS[:2], ids=["failed", "rejected"])
async def test_events_and_the_log_have_one_line_of_it_and_the_store_can_keep_it(
    answer: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    store, heard = MemoryStore(), list[Event]()
    await store.outbox.put([Message("order.paid", key="a")])
    config = RelayConfig(poll=SECOND / 50, lease=6 * SECOND, send_timeout=SECOND)
    route = Route(to=Answering(answer), retry=RetryPolicy(Table((SECOND / 100,)), max_attempts=2))
    with caplog.at_level(logging.DEBUG):
        relay = Relay(store, [route], config=config, listeners=Listeners(heard.append, EventLogger()))
        await asyncio.wait_for(relay.drain(), 30)
    told = [event for event in heard if isinstance(event, MessageRetried | MessageBuried)]
    assert told
    for event in told:
        assert_one_line(event.error)
        assert_one_line(event.code)
    assert [record for record in caplog.records if "is dead" in record.getMessage()]
    for record in caplog.records:
        assert_one_line(record.getMessage(), 2_000)
    (kept,) = await store.ops.find(Query())
    assert kept.last_error is not None
    assert not RAW.search(kept.last_error)
    assert len(kept.last_error) <= ERROR_MAX


def test_a_type_that_no_route_fits_is_named_in_one_line() -> None:
    verdict = unrouted(HUGE, waits=False, park=True)
    assert isinstance(verdict, BuriedVerdict)
    assert_one_line(verdict.error)


def test_a_batch_that_was_sent_is_handed_on_as_it_is() -> None:
    outcomes = [Sent(1), Sent(2)]
    assert cleaned(outcomes) is outcomes
