"""What was delivered before may have killed its process: its tries are counted before they begin, and it ends as dead."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.inbox.shops import IDLE, Shop, an_inbox, paid

from postroom.clock import utcnow
from postroom.contracts.inbox import UNFINISHED, DeadQuery, DeliveryState, Known, KnownQuery
from postroom.contracts.transport import Identity
from postroom.errors import StoreUnavailable
from postroom.inbox import BusinessKey, InboxWorker, RedisGuard, handling
from postroom.inbox.suspects import Try, judged
from postroom.message import Message
from postroom.retry import GiveUp
from postroom.transports.memory import MemoryConsumer


def on_record(outcome: DeliveryState, attempts: int, code: str | None) -> Known:
    return Known(
        consumer="billing", source="shop", id=uuid4(), outcome=outcome, attempts=attempts, at=utcnow(), code=code
    )


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (None, Try(alone=False)),
        (on_record("handled", 1, None), None),
        (on_record("dead", 3, "CRASH_LOOP"), None),
        (on_record("failing", 1, "HANDLER_ERROR"), Try(alone=False)),
        (on_record("failing", 1, UNFINISHED), Try(alone=True)),
        (on_record("failing", 2, "HANDLER_ERROR"), Try(alone=True)),
        (on_record("failing", 3, UNFINISHED), GiveUp("CRASH_LOOP")),
        (on_record("failing", 3, "HANDLER_ERROR"), GiveUp("MAX_ATTEMPTS")),
        (on_record("requeued", 0, "MAX_ATTEMPTS"), Try(alone=False)),
        (on_record("requeued", 0, "CRASH_LOOP"), Try(alone=True)),
    ],
)
def test_what_becomes_of_a_suspect_follows_from_what_is_on_record(before: Known | None, then: Any) -> None:
    assert judged(before, 3) == then


def test_with_one_try_in_all_every_suspect_goes_alone() -> None:
    """Else one that was handled beside the poison would be dead for it."""
    assert judged(None, 1) == Try(alone=True)


class Again(MemoryConsumer):
    """Everything was delivered before."""

    async def receive(self, limit: int, *, wait: Any) -> Any:
        return [replace(each, redelivered=1) for each in await super().receive(limit, wait=wait)]


def reception(shop: Shop, inbox: Any, **options: Any) -> InboxWorker:
    return InboxWorker(inbox, shop.desk.opened, Again(shop.broker, "orders", group=inbox.name), **options)


async def test_a_message_delivered_again_is_counted_once_and_then_handled(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("*", batch=10)
    async def handle(messages: list[Message], tx: Any) -> None:
        (message,) = messages
        (known,) = await shop.desk.store.known(KnownQuery(ids=[message.id])) if shop.is_postgres else (None,)
        assert known is None or (known.code, known.attempts) == (UNFINISHED, 1)
        await shop.ainsert(tx, message.data)

    shop.send(paid(1), paid(2, key="b"))
    assert (await reception(shop, inbox).run(until_idle=IDLE)).done == {"handled": 2}
    assert sorted(await shop.desk.effects()) == ["1", "2"]
    found = await shop.desk.store.known(KnownQuery())
    assert [(each.outcome, each.attempts, each.code) for each in found] == [("handled", 1, None)] * 2


async def test_a_failed_try_of_one_delivered_again_is_counted_once(shop: Shop) -> None:
    inbox, calls = an_inbox(), list[object]()

    @inbox.on("*")
    def fail(message: Message, tx: Any) -> None:
        calls.append(message.data)
        raise OSError("the bank is closed")

    shop.send(paid(1))
    tally = await reception(shop, inbox).run(until_idle=IDLE)
    assert (len(calls), tally.done["failed"], tally.done["dead"]) == (3, 2, 1)
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert (dead.code, dead.attempts) == ("MAX_ATTEMPTS", 3)


async def test_a_message_whose_tries_never_ended_is_dead_without_another(shop: Shop) -> None:
    inbox, calls = an_inbox(), list[object]()

    @inbox.on("*")
    def handle(message: Message, tx: Any) -> None:
        calls.append(message.data)

    poison = paid("poison")
    for _ in range(3):
        await shop.desk.store.failed("billing", shop.identity(poison), UNFINISHED, "")
    shop.send(poison, paid("next"))
    assert (await reception(shop, inbox).run(until_idle=IDLE)).done == {"dead": 1, "handled": 1}
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert (dead.code, dead.attempts, dead.message.data) == ("CRASH_LOOP", 3, "poison")
    assert calls == ["next"], "its key goes on"


async def test_one_whose_last_try_never_ended_travels_alone(shop: Shop) -> None:
    inbox, now, beside, gate = an_inbox(), set[object](), dict[object, int](), threading.Event()

    @inbox.on("*")
    def handle(message: Message, tx: Any) -> None:
        if message.data == "suspect":
            beside[message.data] = len(now)
        now.add(message.data)
        if message.data == "suspect":
            gate.wait(0.3)  # time enough for others to begin
            beside["after"] = len(now) - 1
        now.discard(message.data)

    suspect = paid("suspect", key="s")
    await shop.desk.store.failed("billing", shop.identity(suspect), UNFINISHED, "")
    shop.send(*(paid(n, key=str(n)) for n in range(20)), suspect, *(paid(n, key=str(n)) for n in range(20, 40)))
    tally = await reception(shop, inbox, concurrency=4).run(until_idle=IDLE)
    assert tally.done == {"handled": 41}
    assert beside == {"suspect": 0, "after": 0}


async def test_what_was_not_delivered_before_costs_no_statement(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = an_inbox()
    inbox.on("*")(lambda message, tx: shop.insert(tx, message.data))

    async def asked(*_: object) -> None:
        raise AssertionError("a statement for nothing")

    for name in ("known", "failed"):
        monkeypatch.setattr(shop.desk.store, name, asked)
    shop.send(paid(1), paid(2))
    assert (await shop.receive(inbox)).done == {"handled": 2}


async def test_a_database_that_goes_away_does_not_count_a_suspects_try_twice(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, away, whole = an_inbox(), [3], shop.desk.store.transaction

    @inbox.on("*")
    async def handle(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, message.data)

    def transaction() -> Any:
        if away[0]:
            away[0] -= 1
            raise StoreUnavailable("it is away")
        return whole()

    monkeypatch.setattr(shop.desk.store, "transaction", transaction)
    shop.send(paid(1))
    assert (await reception(shop, inbox).run(until_idle=IDLE)).done == {"handled": 1}
    (known,) = await shop.desk.store.known(KnownQuery())
    assert (known.outcome, known.attempts) == ("handled", 1)


@pytest.mark.parametrize("is_there", [False, True])
async def test_with_a_guard_of_its_own_a_suspect_that_worked_is_not_left_failing(shop: Shop, is_there: bool) -> None:
    async with shop.desk.store.transaction() as tx:
        done: Any = tx.handle.execute("CREATE UNIQUE INDEX effects_name ON effects (name)")
        if asyncio.iscoroutine(done):
            await done
        if is_there:
            await shop.ainsert(tx.handle, "a")
    inbox = an_inbox(guard=BusinessKey("effects_name" if shop.is_postgres else "effects.name"))
    inbox.on("*")(lambda message, tx: shop.insert(tx, message.key))
    shop.send(paid(1))
    await reception(shop, inbox).run(until_idle=IDLE)
    assert list(await shop.desk.effects()) == ["a"]
    assert await shop.desk.store.counts() == {"billing": {"handled": 1}}


async def test_to_find_it_in_anothers_hand_costs_a_suspect_no_try(
    shop: Shop, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was killed leaves its hold in Redis, for longer than all the tries would take."""
    monkeypatch.setattr(handling, "BUSY_AGAIN", timedelta(milliseconds=20))
    dead = RedisGuard(f"{redis_url}/0", ttl=timedelta(days=8), hold=timedelta(seconds=0.5))
    inbox = an_inbox(f"billing-{uuid4()}", guard=RedisGuard(f"{redis_url}/0", ttl=timedelta(days=8)))
    inbox.on("*")(lambda message, tx: shop.insert(tx, message.data))
    message = paid(1)
    await dead.open(inbox.name)
    await dead.enter(inbox.name, [shop.identity(message)])
    await dead.close()
    shop.send(message)
    async with asyncio.timeout(20):
        tally = await reception(shop, inbox).run(until_idle=IDLE)
    assert tally.done == {"handled": 1}
    (known,) = await shop.desk.store.known(KnownQuery())
    assert (known.outcome, known.attempts) == ("handled", 1)


async def test_a_suspect_that_is_done_with_by_the_time_it_is_counted_is_not_tried(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, calls = an_inbox(guard=BusinessKey("charges_key")), list[object]()
    inbox.on("*")(lambda message, tx: calls.append(message.data))

    async def handled_meanwhile(*_: object) -> int:
        return 0

    monkeypatch.setattr(shop.desk.store, "failed", handled_meanwhile)
    shop.send(paid(1))
    assert (await reception(shop, inbox).run(until_idle=IDLE)).done == {"known": 1}
    assert calls == []


async def test_a_requeued_message_is_counted_before_it_is_handled(shop: Shop) -> None:
    """Nobody but us delivers it: one that kills its process would be handled at each start, for ever."""
    inbox, well, seen = an_inbox(), list[bool](), asyncio.Event()

    @inbox.on("*")
    def handle(message: Message, tx: Any) -> None:
        if not well:
            raise OSError

    message = paid(1)
    shop.send(message)
    await shop.receive(inbox)
    well.append(True)
    counted = list[tuple[str, int]]()
    count = shop.desk.store.failed

    async def failed(consumer: str, event: Identity, code: str, error: str) -> int:
        attempts = await count(consumer, event, code, error)
        counted.append((code, attempts))
        seen.set()
        return attempts

    shop.desk.store.failed = failed  # type: ignore[method-assign] # to listen
    assert await shop.desk.store.requeue(DeadQuery(ids=[message.id])) == 1
    async with shop.receiving(inbox), asyncio.timeout(20):
        await seen.wait()
        while await shop.desk.store.dead(DeadQuery()):
            await asyncio.sleep(0.05)
    assert counted == [(UNFINISHED, 1)]
    assert await shop.desk.store.counts() == {"billing": {"handled": 1}}
