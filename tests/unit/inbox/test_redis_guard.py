"""The guard in Redis: once while the key lives, and honest about the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.inbox.shops import IDLE, TOPIC, Shop, an_inbox, paid

from postroom.contracts.transport import Identity
from postroom.errors import ConfigError, StoreUnavailable
from postroom.inbox import InboxWorker, RedisGuard, RejectMessage, handling
from postroom.inbox.guards import Entry
from postroom.message import Message
from postroom.testing.contracts.inbox import an_event

LONG = timedelta(days=8)


def a_guard(url: str, **options: Any) -> RedisGuard:
    return RedisGuard(f"{url}/0", ttl=LONG, **options)


@pytest.mark.requirement("D5")
async def test_a_message_is_handled_once_and_a_failure_gives_its_key_back(
    shop: Shop, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[object]()
    inbox = an_inbox(f"billing-{uuid4()}", guard=a_guard(redis_url))

    @inbox.on("*")
    async def handle(message: Message, tx: Any) -> None:
        calls.append(message.data)
        if calls.count(2) == 1 and message.data == 2:
            raise OSError("once")
        if message.data == 3:
            raise RejectMessage("never")
        await shop.ainsert(tx, message.data)

    messages = [paid(1), paid(2), paid(3)]
    shop.send(*messages, messages[0])
    tally = await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["1", "2"]
    assert (tally.done["handled"], tally.done["known"], tally.done["dead"]) == (2, 1, 1)
    assert "handled twice" in caplog.text, "its limits are told when it starts"


async def test_while_one_handles_a_message_another_waits_and_then_knows_it(redis_url: str) -> None:
    one, two, event = a_guard(redis_url), a_guard(redis_url), an_event()
    await asyncio.gather(one.open("billing"), two.open("billing"))
    assert (await one.enter("billing", [event])).new == {event}
    assert (await two.enter("billing", [event])).busy == {event}
    await two.leave("billing", [event], done=False)
    assert (await two.enter("billing", [event])).busy == {event}, "what is another's is not given back"
    await one.leave("billing", [event], done=True)
    entry = await two.enter("billing", [event])
    assert (entry.new, entry.busy) == (frozenset(), frozenset())
    assert (await two.enter("mailing", [event])).new == {event}
    await asyncio.gather(one.close(), two.close())


class Telling(RedisGuard):
    """Says when another has what it wants."""

    def __init__(self, url: str, met: asyncio.Event) -> None:
        super().__init__(f"{url}/0", ttl=LONG)
        self._met = met

    async def enter(self, consumer: str, events: Collection[Identity]) -> Entry:
        entry = await super().enter(consumer, events)
        if entry.busy:
            self._met.set()
        return entry


async def test_what_another_consumer_has_in_hand_is_put_off_and_has_one_effect(
    shop: Shop, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same message comes to both, and whoever has it waits until the other met it."""
    monkeypatch.setattr(handling, "BUSY_AGAIN", timedelta(milliseconds=20))
    name, met, groups = f"billing-{uuid4()}", asyncio.Event(), ("one", "two")

    def a_consumer(group: str) -> InboxWorker:
        inbox = an_inbox(name, guard=Telling(redis_url, met))

        @inbox.on("*")
        async def charge(message: Message, tx: Any) -> None:
            await met.wait()
            await shop.ainsert(tx, message.data)

        return shop.reception(inbox, group=group)

    shop.send(paid(1))
    async with asyncio.timeout(20):
        tallies = await asyncio.gather(*(a_consumer(group).run(until_idle=IDLE) for group in groups))
    assert list(await shop.desk.effects()) == ["1"]
    assert tallies[0].done + tallies[1].done == Counter(handled=1, known=1), "to be put off is no failure"
    assert all(len(shop.broker.groups[TOPIC, group].in_flight) == 0 for group in groups), "both are done with it"


async def test_one_that_died_is_followed_when_its_hold_is_over(redis_url: str) -> None:
    dead, heir, event = a_guard(redis_url, hold=timedelta(seconds=0.3)), a_guard(redis_url), an_event()
    await asyncio.gather(dead.open("billing"), heir.open("billing"))
    await dead.enter("billing", [event])
    assert (await heir.enter("billing", [event])).busy == {event}
    await asyncio.sleep(0.5)
    assert (await heir.enter("billing", [event])).new == {event}
    await asyncio.gather(dead.close(), heir.close())


async def test_a_redis_that_is_away_costs_no_attempt() -> None:
    guard = RedisGuard("redis://127.0.0.1:1/0", ttl=LONG)
    await guard.open("billing")
    with pytest.raises(StoreUnavailable, match="check that it runs"):
        await guard.enter("billing", [an_event()])
    await guard.close()


class Flaky(RedisGuard):
    """Its Redis is away for some answers: those to what is said after the handler."""

    away = misses = 0

    async def leave(self, consumer: str, events: Collection[Identity], *, done: bool) -> None:
        self.away, self.misses = self.misses, 0
        await super().leave(consumer, events, done=done)

    async def _answers(self, pipeline: Any) -> list[Any]:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("it is away")
        return await super()._answers(pipeline)


@pytest.mark.parametrize("batch", [None, 10])
async def test_a_redis_that_is_away_after_the_commit_repeats_the_marking_and_not_the_effect(
    shop: Shop, redis_url: str, batch: int | None
) -> None:
    """It is away for longer than the hold, and has lost it when it is back."""
    guard = Flaky(f"{redis_url}/0", ttl=LONG, hold=timedelta(milliseconds=50))
    guard.misses = 3
    inbox = an_inbox(f"billing-{uuid4()}", guard=guard)

    async def handle(given: Any, tx: Any) -> None:
        for message in given if batch else [given]:
            await shop.ainsert(tx, message.data)

    if batch:
        handle.__annotations__["given"] = list[Message]
    inbox.on("*", batch=batch)(handle)
    message = paid(1)
    shop.send(message)
    await shop.receive(inbox)
    shop.send(message)
    await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["1"]


async def test_what_could_not_be_marked_is_marked_at_the_end(redis_url: str) -> None:
    guard, other, event = Flaky(f"{redis_url}/0", ttl=LONG), a_guard(redis_url), an_event()
    guard.misses = 1
    await asyncio.gather(guard.open("billing"), other.open("billing"))
    await guard.enter("billing", [event])
    with pytest.raises(StoreUnavailable):
        await guard.leave("billing", [event], done=True)
    assert (await other.enter("billing", [event])).busy == {event}
    await guard.close()
    entry = await other.enter("billing", [event])
    assert (entry.new, entry.busy) == (frozenset(), frozenset()), "it is known"
    await other.close()


async def test_a_hold_that_could_not_be_given_back_is_still_ours(redis_url: str) -> None:
    guard, event = Flaky(f"{redis_url}/0", ttl=LONG), an_event()
    guard.misses = 1
    await guard.open("billing")
    await guard.enter("billing", [event])
    with pytest.raises(StoreUnavailable):
        await guard.leave("billing", [event], done=False)
    assert (await guard.enter("billing", [event])).new == {event}
    assert (await guard.enter("billing", [event])).busy == {event}, "now it is in hand"
    await guard.close()


@pytest.mark.requirement("D5")
def test_a_time_to_live_within_the_replay_window_is_refused() -> None:
    with pytest.raises(ConfigError, match="make its ttl longer"):
        an_inbox(guard=RedisGuard("redis://localhost/0", ttl=timedelta(days=1)))
