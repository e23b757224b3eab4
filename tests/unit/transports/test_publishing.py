"""The shell around every publisher: closed, empty, by when, and what is waited for. The time is the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroom.contracts.transport import Envelope, Outcome, Sent
from postroom.errors import ConfigError
from postroom.message import Message
from postroom.transports import publishing
from postroom.transports.publishing import CLOSED, GRACE_SECONDS, Calls, Deadline, checked_source, deadline, timeout_at

BATCH = [Envelope(Message("order.paid", key="a", data=number)) for number in range(3)]
SENT = Sent()
SECOND = timedelta(seconds=1)


class Clock:
    """What `monotonic` says in here."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Broker:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked: list[Deadline] = []
        self.ended = 0

    async def send(self, batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        self.asked.append(by)
        try:
            await self.may_answer.wait()
        finally:
            self.ended += 1
        return [SENT] * len(batch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(publishing, "monotonic", clock)
    return clock


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def calls() -> Calls:
    calls = Calls()
    calls.open()
    return calls


async def begun(calls: Calls, broker: Broker, timeout: timedelta = SECOND) -> asyncio.Task[Sequence[Outcome]]:
    """A call that waits for the broker."""
    task = asyncio.ensure_future(calls.run(broker.send, BATCH, timeout))
    await settled()
    assert not task.done()
    return task


async def settled() -> None:
    """Let everything run that can run now."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("seconds", "margin"), [(0.0, 0.0), (0.5, 0.05), (1.0, 0.1), (2.5, 0.25), (10.0, 0.25), (600.0, 0.25)]
)
def test_the_answer_is_due_a_little_before_the_time_is_up(clock: Clock, seconds: float, margin: float) -> None:
    by = deadline(timedelta(seconds=seconds))
    assert (by.begin, by.end) == (clock.now, clock.now + seconds)
    assert by.end - by.until == pytest.approx(margin)


def test_a_share_of_the_time_is_one_of_the_whole_time(clock: Clock) -> None:
    by = deadline(timedelta(seconds=8))
    assert [by.after(share) for share in (0, 0.5, 0.75, 1)] == [clock.now, clock.now + 4, clock.now + 6, clock.now + 8]


async def test_a_timeout_counts_from_now_on_our_clock(clock: Clock) -> None:
    with pytest.raises(TimeoutError):
        async with timeout_at(clock.now):
            await asyncio.Event().wait()


async def test_it_takes_nothing_before_it_is_open_and_after_it_was_closed(broker: Broker) -> None:
    calls = Calls()
    assert await calls.run(broker.send, BATCH, SECOND) == [CLOSED] * 3
    calls.open()
    await calls.close()
    assert await calls.run(broker.send, BATCH, SECOND) == [CLOSED] * 3
    assert not calls.is_open
    assert broker.asked == []


async def test_an_empty_batch_is_an_empty_answer_and_the_broker_is_not_asked(calls: Calls, broker: Broker) -> None:
    assert await calls.run(broker.send, [], SECOND) == []
    assert broker.asked == []


async def test_the_broker_is_told_by_when_and_its_answer_is_the_answer(
    calls: Calls, broker: Broker, clock: Clock
) -> None:
    broker.may_answer.set()
    assert await calls.run(broker.send, BATCH, timedelta(seconds=10)) == [SENT] * 3
    assert broker.asked == [Deadline(clock.now, clock.now + 9.75, clock.now + 10)]


async def test_closing_waits_for_all_that_is_under_way_and_lets_nothing_in(calls: Calls, broker: Broker) -> None:
    both = [await begun(calls, broker), await begun(calls, broker)]
    closing = asyncio.ensure_future(calls.close())
    await settled()
    assert not closing.done()
    assert await calls.run(broker.send, BATCH, SECOND) == [CLOSED] * 3
    broker.may_answer.set()
    await closing
    assert broker.ended == 2
    assert await asyncio.gather(*both) == [[SENT] * 3] * 2


async def test_closing_twice_is_fine_and_at_once(calls: Calls, broker: Broker) -> None:
    calling = await begun(calls, broker)
    both = asyncio.gather(calls.close(), calls.close())
    broker.may_answer.set()
    await both
    await calls.close()
    assert await calling == [SENT] * 3


async def test_it_can_be_opened_again(calls: Calls, broker: Broker) -> None:
    await calls.close()
    calls.open()
    broker.may_answer.set()
    assert await calls.run(broker.send, BATCH, SECOND) == [SENT] * 3


async def test_closing_does_not_wait_for_ever(calls: Calls, broker: Broker, clock: Clock) -> None:
    calling = await begun(calls, broker, timedelta(seconds=30))
    await begun(calls, broker, timedelta(seconds=2))
    waits = asyncio.ensure_future(calls.close())
    await settled()
    assert not waits.done(), "its time is not up"
    clock.now += 30 + GRACE_SECONDS
    await calls.close()
    assert not calling.done()
    broker.may_answer.set()
    await waits


async def test_a_cancelled_call_reaches_the_broker_and_is_under_way_until_it_has_ended(
    calls: Calls, broker: Broker
) -> None:
    calling = await begun(calls, broker)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert broker.ended == 1
    await calls.close()


async def test_what_the_broker_raises_is_raised_and_leaves_nothing_under_way(calls: Calls) -> None:
    async def broken(batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        raise OSError(len(batch), by.end)

    with pytest.raises(OSError, match="3"):
        await calls.run(broken, BATCH, SECOND)
    await calls.close()


async def test_closing_waits_for_a_task_that_outlives_its_call(calls: Calls, broker: Broker) -> None:
    by = deadline(SECOND)
    task = asyncio.ensure_future(broker.send(BATCH, by))
    calls.keep(task, by)
    closing = asyncio.ensure_future(calls.close())
    await settled()
    assert not closing.done()
    broker.may_answer.set()
    await closing
    assert task.done()
    await calls.close()


def test_an_empty_source_is_refused() -> None:
    assert checked_source("https://shop.example") == "https://shop.example"
    with pytest.raises(ConfigError, match="source is empty"):
        checked_source("")
