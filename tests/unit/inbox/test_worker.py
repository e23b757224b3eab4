"""A message's effects happen once, in order per key, whatever its handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest
from tests.unit.inbox.shops import IDLE, QUICK, TOPIC, Shop, an_inbox, paid

from postroom.contracts.inbox import DeadQuery
from postroom.contracts.transport import Identity
from postroom.errors import ConfigError, PostroomError, StoreUnavailable
from postroom.inbox import (
    BusinessKey,
    ErrorClass,
    Inbox,
    InboxWorker,
    KeyedMessage,
    RejectMessage,
    RetryLater,
    handling,
)
from postroom.inbox.guards import Entry, Outside
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.transports.memory import MemoryConsumer


async def dead_codes(shop: Shop) -> list[str]:
    return [dead.code for dead in await shop.desk.store.dead(DeadQuery())]


# ── once ──


async def test_a_sync_and_an_async_handler_write_with_the_message(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("order.paid")
    def charge(message: Message, tx: Any) -> None:
        shop.insert(tx, f"sync {message.data}")

    @inbox.on("order.*")
    async def mail(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, f"async {message.type}")

    shop.send(paid(1), Message("order.sent", key="a"))
    tally = await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["sync 1", "async order.sent"]
    assert tally.done == {"handled": 2}
    assert len(shop.broker.groups[TOPIC, "billing"].in_flight) == 0, "all of it was acknowledged"


async def test_an_async_handler_behind_a_plain_function_has_failed_instead_of_doing_nothing(shop: Shop) -> None:
    """A decorator that knows nothing of async hides it: that the call returned would mean nothing."""
    inbox = an_inbox()

    async def charge(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, "never")

    @inbox.on("order.paid")
    def plain(message: Message, tx: Any) -> object:
        return charge(message, tx)

    shop.send(paid(1))
    tally = await shop.receive(inbox)
    assert tally.done["handled"] == 0
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert "async def" in dead.error
    assert list(await shop.desk.effects()) == []


@pytest.mark.requirement("A3", "A9", "D5", "D8")
async def test_a_message_delivered_five_times_three_at_once_to_two_consumers_has_one_effect_each(shop: Shop) -> None:
    def an_inbox_called(name: str) -> Inbox:
        inbox = an_inbox(name)

        @inbox.on("*")
        async def record(message: Message, tx: Any) -> None:
            await asyncio.sleep(0.02)
            await shop.ainsert(tx, f"{name} {message.data}")

        return inbox

    inboxes = [an_inbox_called("billing"), an_inbox_called("mailing")]
    message = paid(1, key=None)
    shop.send(message, message, message)
    async with shop.receiving(*inboxes, *inboxes[:1]):
        await asyncio.sleep(0.4)
        shop.send(message, message)
        await asyncio.sleep(0.4)
    assert sorted(await shop.desk.effects()) == ["billing 1", "mailing 1"]
    assert await shop.desk.store.counts() == {"billing": {"handled": 1}, "mailing": {"handled": 1}}


async def test_a_handler_that_fails_twice_has_one_effect_and_three_attempts_on_record(shop: Shop) -> None:
    inbox, calls = an_inbox(), list[int]()

    @inbox.on("order.paid")
    async def charge(message: Message, tx: Any) -> None:
        calls.append(1)
        await shop.ainsert(tx, message.data)
        if len(calls) < 3:
            raise OSError("the bank is closed")

    shop.send(paid(1))
    await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["1"]
    assert await attempts_on_record(shop) == [3]


async def attempts_on_record(shop: Shop) -> list[int]:
    async with shop.desk.store.transaction() as tx:
        handle: Any = tx.handle
        cursor = handle.execute("SELECT attempts FROM inbox")
        rows = cursor.fetchall() if not asyncio.iscoroutine(cursor) else await (await cursor).fetchall()
    return [row[0] for row in rows]


# ── failing ──


async def test_over_the_limit_it_is_dead_with_its_bytes_and_goes_again_when_requeued(shop: Shop) -> None:
    inbox, well = an_inbox(), list[bool]()

    @inbox.on("order.paid")
    def charge(message: Message, tx: Any) -> None:
        shop.insert(tx, message.data)
        if not well:
            raise OSError("the bank is closed")

    message = paid({"amount": 12})
    shop.send(message)
    tally = await shop.receive(inbox)
    assert (tally.done["failed"], tally.done["dead"]) == (2, 1)
    assert list(await shop.desk.effects()) == []
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert (dead.code, dead.attempts, dead.message.body) == ("MAX_ATTEMPTS", 3, message.body)
    assert "the bank is closed" in dead.error
    shop.send(message)
    assert (await shop.receive(inbox)).done == {"known": 1}, "a repetition of what is dead is no new message"
    well.append(True)
    assert await shop.desk.store.requeue(DeadQuery(ids=[message.id])) == 1
    async with shop.receiving(inbox):
        for _ in range(100):
            if await shop.desk.effects():
                break
            await asyncio.sleep(0.05)
    assert len(await shop.desk.effects()) == 1
    assert list(await shop.desk.store.dead(DeadQuery())) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RejectMessage("no such order", code="NO_ORDER"), "NO_ORDER"),
        (KeyError("amount"), "BAD_DATA"),
        (SystemExit(1), "MAX_ATTEMPTS"),
        (RetryLater("later", retry_after=timedelta(milliseconds=1)), "MAX_ATTEMPTS"),
    ],
)
@pytest.mark.requirement("A5")
async def test_what_an_error_means_is_in_one_table(shop: Shop, error: BaseException, code: str) -> None:
    inbox = an_inbox(errors={LookupError: ErrorClass(code="BAD_DATA", business=True, retryable=False)})

    @inbox.on("*")
    def fail(message: Message, tx: Any) -> None:
        raise error

    shop.send(paid(1))
    await shop.receive(inbox)
    assert await dead_codes(shop) == [code]


@pytest.mark.parametrize("name", ["order\x00paid", "order \ud800"])
async def test_a_name_that_cannot_be_stored_is_dead_and_ends_nothing(shop: Shop, name: str) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    def charge(message: Message, tx: Any) -> None:
        shop.insert(tx, message.data)

    hostile = Message(name, key=name, body=b"\xff", content_type="image/png", headers={"x": name})
    shop.send(hostile, paid(1))
    tally = await shop.receive(inbox)
    assert tally.done == {"dead": 1, "handled": 1}
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert (dead.code, dead.message.body, dead.message.id) == ("NO_EVENT", b"\xff", hostile.id)
    assert list(await shop.desk.effects()) == ["1"]


class Mute(Exception):
    """What it says can only be had by an error."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"), [(Mute(), "Mute"), (ValueError("half \ud800 and \x00"), r"half \ud800 and \x00")]
)
async def test_an_error_without_words_or_with_impossible_ones_is_a_failed_try(
    shop: Shop, error: Exception, said: str
) -> None:
    inbox = an_inbox()

    @inbox.on("order.paid")
    def charge(message: Message, tx: Any) -> None:
        raise error

    shop.send(paid(1))
    tally = await shop.receive(inbox)
    assert tally.done == {"failed": 2, "dead": 1}
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert said in dead.error


def a_cancelled_task() -> asyncio.Task[None]:
    """Somebody else's, whose cancellation comes out where it is awaited."""
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    return task


@pytest.mark.parametrize("how", ["async", "sync", "async batch", "sync batch"])
async def test_a_handler_that_awaited_a_cancelled_task_has_failed_and_stops_no_key(shop: Shop, how: str) -> None:
    inbox = an_inbox()
    batch = 10 if "batch" in how else None

    async def in_the_loop(given: Any, tx: Any) -> None:
        for message in given if batch else [given]:
            await shop.ainsert(tx, message.data)
            if message.data == "bad":
                await a_cancelled_task()

    def in_a_thread(given: Any, tx: Any) -> None:
        for message in given if batch else [given]:
            shop.insert(tx, message.data)
            if message.data == "bad":
                raise asyncio.CancelledError

    handle = in_the_loop if how.startswith("async") else in_a_thread
    handle.__annotations__["given"] = list[Message] if batch else Message
    inbox.on("order.paid", batch=batch)(handle)

    shop.send(paid("before", key="b"), paid("bad"), paid("after"), paid("beside", key="b"))
    async with asyncio.timeout(20):
        tally = await shop.receive(inbox)
    assert sorted(await shop.desk.effects()) == ["after", "before", "beside"]
    assert (tally.done["failed"], tally.done["dead"]) == (2, 1)
    (dead,) = await shop.desk.store.dead(DeadQuery())
    assert (dead.code, dead.attempts) == ("MAX_ATTEMPTS", 3)
    assert "CancelledError" in dead.error
    assert "Escaped" not in dead.error


async def test_what_a_user_says_of_a_cancellation_counts(shop: Shop) -> None:
    inbox = an_inbox(errors={asyncio.CancelledError: ErrorClass(code="STOPPED", retryable=False)})

    @inbox.on("*")
    async def fail(message: Message, tx: Any) -> None:
        await a_cancelled_task()

    shop.send(paid(1))
    await shop.receive(inbox)
    assert await dead_codes(shop) == ["STOPPED"]


@pytest.mark.parametrize("batch", [None, 10])
async def test_a_handler_that_cancels_the_task_it_runs_in_ends_the_reception_loudly(
    shop: Shop, batch: int | None
) -> None:
    """That is no failed try: nobody can tell it from being told to end. But a key must not stop without a word."""
    inbox = an_inbox()

    async def end(given: Any, tx: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    end.__annotations__["given"] = list[Message] if batch else Message
    inbox.on("*", batch=batch)(end)
    message = paid(1)
    shop.send(message)
    async with asyncio.timeout(20):
        with pytest.raises(PostroomError, match="was cancelled") as told:
            await shop.reception(inbox).run()
    assert str(message.id) in str(told.value)
    assert list(await shop.desk.effects()) == []


async def test_a_handler_that_swallows_a_database_error_does_not_lose_its_message(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    async def swallow(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, message.data)
        try:
            done = tx.execute("INSERT INTO nowhere VALUES (1)")
            if asyncio.iscoroutine(done):
                await done
        except Exception:
            pass

    shop.send(paid(1))
    tally = await shop.receive(inbox)
    if shop.desk.opened.capabilities.name == "postgres":
        # There the transaction is lost with the error, and a COMMIT would say nothing.
        assert await dead_codes(shop) == ["MAX_ATTEMPTS"]
        assert "BROKEN_TRANSACTION" in (await shop.desk.store.dead(DeadQuery()))[0].error
    else:
        assert tally.done == {"handled": 1}
    assert len(await shop.desk.effects()) == tally.done["handled"]


async def test_a_handler_that_rolls_back_by_itself_is_told_so(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    def end(message: Message, tx: Any) -> None:
        shop.insert(tx, message.data)
        tx.execute("ROLLBACK")

    shop.send(paid(1))
    await shop.receive(inbox)
    assert await dead_codes(shop) == ["MAX_ATTEMPTS"]
    assert list(await shop.desk.effects()) == []


async def test_a_database_that_is_away_costs_no_attempt_and_each_try_is_told(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inbox, away = an_inbox(), [3]

    @inbox.on("*")
    async def handle(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, message.data)

    whole = shop.desk.store.transaction

    def transaction() -> Any:
        if away[0]:
            away[0] -= 1
            raise StoreUnavailable("it is away")
        return whole()

    monkeypatch.setattr(shop.desk.store, "transaction", transaction)
    shop.send(paid(1))
    tally = await shop.reception(inbox).run(until_idle=timedelta(seconds=1.5))
    assert tally.done == {"handled": 1}
    monkeypatch.undo()
    assert await attempts_on_record(shop) == [1]
    told = [record.message for record in caplog.records if record.name == "postroom.inbox.worker"]
    assert told == ["Nothing can be handled: it is away"] * 3


# ── order ──


async def test_behind_a_failing_message_its_key_waits_and_no_other_does(shop: Shop) -> None:
    inbox, calls = an_inbox(retry=QUICK), list[object]()

    @inbox.on("*")
    async def handle(message: Message, tx: Any) -> None:
        calls.append(message.data)
        if calls == ["a1"] or (calls.count("a1") < 2 and message.data == "a1"):
            raise OSError
        await shop.ainsert(tx, message.data)

    shop.send(paid("a1", key="a"), paid("a2", key="a"), paid("b1", key="b"), paid("b2", key="b"))
    await shop.receive(inbox)
    effects = list(await shop.desk.effects())
    assert [effect for effect in effects if effect[0] == "a"] == ["a1", "a2"]
    assert [effect for effect in effects if effect[0] == "b"] == ["b1", "b2"]
    assert effects.index("b2") < effects.index("a1")


async def test_keys_are_handled_side_by_side_up_to_the_concurrency(shop: Shop) -> None:
    inbox, now, most = an_inbox(), [0], [0]

    @inbox.on("*")
    def slow(message: Message, tx: Any) -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        now[0] -= 1

    shop.send(*(paid(number, key=str(number)) for number in range(40)))
    assert (await shop.receive(inbox, concurrency=4)).done == {"handled": 40}
    assert most[0] <= 4


async def test_what_is_being_handled_is_finished_and_the_rest_goes_back_when_it_stops(shop: Shop) -> None:
    inbox, begun, go = an_inbox(), asyncio.Event(), asyncio.Event()

    @inbox.on("*")
    async def slow(message: Message, tx: Any) -> None:
        begun.set()
        await go.wait()
        await shop.ainsert(tx, message.data)

    shop.send(paid(1), paid(2))
    reception = shop.reception(inbox)
    running = asyncio.create_task(reception.run())
    await begun.wait()
    reception.stop()
    await asyncio.sleep(0.05)
    go.set()
    await running
    assert list(await shop.desk.effects()) == ["1"]
    consumer = MemoryConsumer(shop.broker, TOPIC, group="billing")
    assert [each.message.data for each in await consumer.receive(5, wait=timedelta(0))] == [2]


# ── forgetting ──


async def test_an_inbox_with_a_short_memory_does_not_erase_that_of_another(shop: Shop) -> None:
    moment = timedelta(microseconds=1)
    short = an_inbox("mailing", retention=moment, replay_window=moment)
    long, handled = an_inbox("billing"), list[str]()
    short.on("*")(lambda message, tx: handled.append("mailing"))
    long.on("*")(lambda message, tx: handled.append("billing"))
    message = paid(1)
    shop.send(message)
    await shop.receive(long)
    await shop.receive(short)
    while "mailing" in await shop.desk.store.counts():
        await shop.receive(short)  # it forgets at its start
    assert await shop.desk.store.counts() == {"billing": {"handled": 1}}
    shop.send(message)
    await shop.receive(long)
    assert handled == ["billing", "mailing"]


# ── many at once ──


async def test_a_batch_is_one_transaction_and_known_ones_are_left_out(shop: Shop) -> None:
    inbox, sizes = an_inbox(), list[int]()

    @inbox.on("*", batch=500)
    async def handle(messages: list[Message], tx: Any) -> None:
        sizes.append(len(messages))
        for message in messages:
            await shop.ainsert(tx, message.data)

    messages = [paid(number, key=f"k{number % 7}") for number in range(300)]
    shop.send(*messages, *messages[:50])
    tally = await shop.receive(inbox)
    assert sorted(map(int, await shop.desk.effects())) == list(range(300))
    assert max(sizes) > 100
    assert (tally.done["handled"], tally.done["known"]) == (300, 50)


async def test_a_batch_that_fails_is_handled_one_by_one_and_only_the_bad_one_is_dead(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("*", batch=100)
    def handle(messages: list[Message], tx: Any) -> None:
        for message in messages:
            shop.insert(tx, message.data)
            if message.data == 13:
                raise RejectMessage("unlucky")

    shop.send(*(paid(number, key=f"k{number % 5}") for number in range(40)))
    await shop.receive(inbox)
    effects = list(map(int, await shop.desk.effects()))
    assert sorted(effects) == [number for number in range(40) if number != 13]
    for key in range(5):
        own = [number for number in effects if number % 5 == key]
        assert own == sorted(own), "the order of a key is kept"
    assert await dead_codes(shop) == ["UNACCEPTABLE"]


async def in_order_with_one_more(shop: Shop, first: list[Message], late: Message) -> list[str]:
    """The effects of all these, handled two at a time, where the first two fail together if they are two; *late* comes while
    the others are still in hand."""
    inbox, calls = an_inbox(), list[int]()
    reception = shop.reception(inbox)

    @inbox.on("*", batch=2)
    async def handle(messages: list[Message], tx: Any) -> None:
        calls.append(len(messages))
        if len(calls) == 1 and messages == first[:2]:
            raise OSError("not both at once")
        if late not in shop.broker.topics[TOPIC]:
            shop.send(late)
            while reception.tally.received < len(first) + 1:
                await asyncio.sleep(0.01)
        for message in messages:
            await shop.ainsert(tx, message.data)

    shop.send(*first)
    await reception.run(until_idle=IDLE)
    return list(await shop.desk.effects())


async def test_what_comes_after_a_failed_batch_does_not_overtake_what_waits_for_the_next_one(shop: Shop) -> None:
    a1, a2, a3, a4 = (paid(f"a{number}") for number in range(1, 5))
    others = [paid(f"b{number}", key="b") for number in (1, 2)]
    effects = await in_order_with_one_more(shop, [a1, a2, *others, a3], a4)
    assert [each for each in effects if each.startswith("a")] == ["a1", "a2", "a3", "a4"]


async def test_what_comes_after_a_repeated_message_does_not_overtake_what_waits_for_the_next_batch(shop: Shop) -> None:
    a1, a2, a3 = (paid(f"a{number}") for number in range(1, 4))
    effects = await in_order_with_one_more(shop, [a1, a1, paid("b1", key="b"), a2], a3)
    assert [each for each in effects if each.startswith("a")] == ["a1", "a2", "a3"]


async def test_a_message_for_another_handler_waits_for_the_batch_that_its_key_is_in(shop: Shop) -> None:
    inbox = an_inbox()
    reception = shop.reception(inbox)
    sent = Message("order.sent", key="a")

    @inbox.on("order.paid", batch=5)
    async def charge(messages: list[Message], tx: Any) -> None:
        if sent not in shop.broker.topics[TOPIC]:
            shop.send(sent, paid("a2"))
            while reception.tally.received < 3:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # time enough to overtake
        for message in messages:
            await shop.ainsert(tx, message.data)

    @inbox.on("order.sent")
    async def note(message: Message, tx: Any) -> None:
        await shop.ainsert(tx, "sent")

    shop.send(paid("a1"))
    await reception.run(until_idle=IDLE)
    assert list(await shop.desk.effects()) == ["a1", "sent", "a2"]


# ── what a handler takes ──


@dataclass
class Order:
    number: int


class Struct(msgspec.Struct):
    number: int


class Model(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize("kind", [Order, Struct, Model])
async def test_a_handler_gets_what_it_is_annotated_with(shop: Shop, kind: type[Any]) -> None:
    inbox = an_inbox()

    async def handle(order: Any, tx: Any) -> None:
        assert type(order) is kind
        await shop.ainsert(tx, order.number)

    handle.__annotations__["order"] = kind
    inbox.on("*")(handle)
    shop.send(paid({"number": 7}), paid({"number": "many"}), paid([]))
    await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["7"]
    assert await dead_codes(shop) == ["CORRUPT_PAYLOAD"] * 2


async def test_a_typed_handler_sees_the_message_as_its_third_argument(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("order.paid")
    def charge(order: Order, tx: Any, message: Message) -> None:
        shop.insert(tx, f"{order.number} {message.key} {message.id}")

    @inbox.on("order.sent", batch=10)
    async def note(orders: list[Order], tx: Any, messages: list[Message]) -> None:
        for order, message in zip(orders, messages, strict=True):
            await shop.ainsert(tx, f"{order.number} {message.key} {message.id}")

    first, second = paid({"number": 7}, key="a"), Message("order.sent", key="b", data={"number": 8})
    shop.send(first, second)
    await shop.receive(inbox)
    assert sorted(await shop.desk.effects()) == [f"7 a {first.id}", f"8 b {second.id}"]


async def test_a_handler_that_needs_a_key_is_not_called_without_one(shop: Shop) -> None:
    inbox = an_inbox()

    @inbox.on("order.paid")
    def charge(message: KeyedMessage, tx: Any) -> None:
        shop.insert(tx, message.key.upper())

    @inbox.on("order.sent")
    async def note(order: Order, tx: Any, message: KeyedMessage) -> None:
        await shop.ainsert(tx, message.key.upper())

    sent = [Message("order.sent", key=key, data={"number": 8}) for key in ("b", None)]
    shop.send(paid(1, key="a"), paid(2, key=None), *sent)
    await shop.receive(inbox)
    assert sorted(await shop.desk.effects()) == ["A", "B"]
    assert await dead_codes(shop) == ["CORRUPT_PAYLOAD"] * 2


def test_a_handler_is_the_same_function_after_it_was_registered() -> None:
    inbox = an_inbox()

    def charge(message: Message, tx: Any) -> None: ...

    assert inbox.on("*")(charge) is charge


def test_a_handler_that_cannot_be_served_is_refused_when_it_is_registered() -> None:
    inbox = an_inbox()
    with pytest.raises(ConfigError, match="two, \\(message, tx\\)"):
        inbox.on("*")(lambda message: None)
    with pytest.raises(ConfigError, match="three, \\(data, tx, message\\)"):
        inbox.on("*")(lambda message, tx, name="mine": None)
    with pytest.raises(ConfigError, match="three, \\(data, tx, message\\)"):
        inbox.on("*")(lambda message, tx, *rest: None)

    def third(message: Message, tx: Any, order: Order) -> None: ...

    with pytest.raises(ConfigError, match="third argument"):
        inbox.on("*")(third)

    def strange(message: int, tx: Any) -> None: ...

    with pytest.raises(ConfigError, match="a dataclass"):
        inbox.on("*")(strange)

    def single(message: Message, tx: Any) -> None: ...

    with pytest.raises(ConfigError, match="as a list"):
        inbox.on("*", batch=5)(single)
    with pytest.raises(ConfigError, match="between 1 and"):
        inbox.on("*", batch=0)
    with pytest.raises(ConfigError, match="give it a name"):
        Inbox(" ")
    with pytest.raises(ConfigError, match="handle them twice"):
        Inbox("billing", retention=timedelta(days=1))


# ── what nobody takes ──


@pytest.mark.parametrize(("unhandled", "codes"), [("skip", []), ("bury", ["NO_HANDLER"])])
async def test_a_message_that_nobody_takes(shop: Shop, unhandled: Any, codes: list[str]) -> None:
    inbox = an_inbox(unhandled=unhandled)
    shop.send(paid(1))
    tally = await shop.receive(inbox)
    assert await dead_codes(shop) == codes
    assert tally.done == ({"dead": 1} if codes else {"skipped": 1})


# ── what follows from it ──


async def test_a_message_put_while_handling_says_what_caused_it(shop: Shop) -> None:
    inbox, outbox = an_inbox(), Outbox()

    @inbox.on("order.paid")
    def ship(message: Message, tx: Any) -> None:
        outbox.put(tx, Message("parcel.packed", key=message.key))
        outbox.put(tx, Message("own", correlation_id="mine", causation_id="me"))

    first = paid(1, correlation_id="c-7")
    shop.send(first, paid(2))
    await shop.receive(inbox)
    put = await shop.desk.put()
    assert (put[0].causation_id, put[0].correlation_id) == (str(first.id), "c-7")
    assert (put[1].causation_id, put[1].correlation_id) == ("me", "mine")
    assert put[2].correlation_id == put[2].causation_id, "without a correlation the first message is it"


# ── a constraint of one's own ──


@pytest.mark.requirement("D5")
async def test_a_business_key_tells_what_was_done_before(shop: Shop) -> None:
    async with shop.desk.store.transaction() as tx:
        done: Any = tx.handle.execute("CREATE UNIQUE INDEX effects_name ON effects (name)")
        if asyncio.iscoroutine(done):
            await done
    name = "effects_name" if shop.desk.opened.capabilities.name == "postgres" else "effects.name"
    inbox = an_inbox(guard=BusinessKey(name))

    @inbox.on("*")
    def handle(message: Message, tx: Any) -> None:
        shop.insert(tx, message.key)

    message = paid(1)
    shop.send(message, message, paid(2))
    tally = await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["a"]
    assert tally.done["handled"] + tally.done["known"] == 3
    assert await shop.desk.store.counts() == {}


async def test_one_known_business_key_in_a_batch_does_not_drop_the_others(shop: Shop) -> None:
    async with shop.desk.store.transaction() as tx:
        done: Any = tx.handle.execute("CREATE UNIQUE INDEX effects_name ON effects (name)")
        if asyncio.iscoroutine(done):
            await done
    inbox = an_inbox(
        guard=BusinessKey("effects_name" if shop.desk.opened.capabilities.name == "postgres" else "effects.name")
    )

    @inbox.on("*", batch=10)
    def handle(messages: list[Message], tx: Any) -> None:
        for message in messages:
            shop.insert(tx, message.key)

    shop.send(*(paid(number, key=key) for number, key in enumerate("abac")))
    tally = await shop.receive(inbox)
    assert sorted(await shop.desk.effects()) == ["a", "b", "c"]
    assert (tally.done["handled"], tally.done["known"]) == (3, 1)


@pytest.mark.parametrize("error", ["NOT NULL", "another table"])
async def test_an_error_that_only_mentions_the_business_key_does_not_lose_the_message(shop: Shop, error: str) -> None:
    name = "effects_name" if shop.desk.opened.capabilities.name == "postgres" else "effects.name"
    inbox = an_inbox(guard=BusinessKey(name))
    async with shop.desk.store.transaction() as tx:
        for statement in (
            "CREATE UNIQUE INDEX effects_name ON effects (name)",
            "CREATE TABLE more_effects (name text)",
            "CREATE UNIQUE INDEX more_effects_name ON more_effects (name)",
            "INSERT INTO more_effects VALUES ('a')",
        ):
            done: Any = tx.handle.execute(statement)
            if asyncio.iscoroutine(done):
                await done

    @inbox.on("*")
    def handle(message: Message, tx: Any) -> None:
        if error == "NOT NULL":
            tx.execute("INSERT INTO effects (name) VALUES (NULL)")
        tx.execute("INSERT INTO more_effects VALUES ('a')")

    shop.send(paid(1))
    tally = await shop.receive(inbox)
    assert (tally.done["known"], tally.done["dead"]) == (0, 1)
    assert await dead_codes(shop) == ["MAX_ATTEMPTS"]


# ── a guard whose message another has in hand ──


@dataclass(slots=True)
class BusyAtFirst(Outside):
    """Another has it when it is first asked for, and not any more then."""

    in_transaction: bool = False
    asked: int = 0

    async def enter(self, consumer: str, events: Collection[Identity]) -> Entry:
        self.asked += 1
        return Entry(frozenset(), frozenset(events)) if self.asked == 1 else Entry(frozenset(events))


@pytest.fixture
def _not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling, "BUSY_AGAIN", timedelta(milliseconds=20))


@pytest.mark.usefixtures("_not_for_long")
async def test_after_it_was_put_off_its_first_failure_is_still_the_first(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """That is the one which is told with its traceback."""
    inbox, calls = an_inbox(guard=BusyAtFirst()), list[object]()

    @inbox.on("*")
    async def charge(message: Message, tx: Any) -> None:
        calls.append(message.data)
        if len(calls) < 3:
            raise OSError("the bank is closed")

    shop.send(paid(1))
    async with asyncio.timeout(20):
        tally = await shop.receive(inbox)
    assert tally.done == {"failed": 2, "handled": 1}
    told = [record for record in caplog.records if "the bank is closed" in record.message]
    assert [bool(record.exc_info) for record in told] == [True, False]


@pytest.mark.usefixtures("_not_for_long")
async def test_what_failed_elsewhere_while_it_was_put_off_is_not_left_failing(shop: Shop) -> None:
    inbox, message = an_inbox(guard=BusyAtFirst()), paid(1)
    inbox.on("*")(lambda message, tx: None)
    await shop.desk.store.failed(inbox.name, shop.identity(message), "HANDLER_ERROR", "the bank is closed")
    shop.send(message)
    async with asyncio.timeout(20):
        tally = await shop.receive(inbox)
    assert tally.done == {"handled": 1}
    assert await shop.desk.store.counts() == {inbox.name: {"handled": 1}}


@dataclass(slots=True)
class OneIsBusyAtFirst(BusyAtFirst):
    """Another has one of them when they are first asked for. What is taken is held until it is left."""

    held: set[Identity] = field(default_factory=set)
    done: set[Identity] = field(default_factory=set)

    async def enter(self, consumer: str, events: Collection[Identity]) -> Entry:
        self.asked += 1
        busy = (set(list(events)[:1]) if self.asked == 1 else set()) | (self.held & set(events))
        new = set(events) - busy - self.done
        self.held |= new
        return Entry(frozenset(new), frozenset(busy))

    async def leave(self, consumer: str, events: Collection[Identity], *, done: bool) -> None:
        self.held -= set(events)
        self.done |= set(events) if done else set()


@pytest.mark.usefixtures("_not_for_long")
async def test_of_a_batch_with_one_that_another_has_in_hand_the_other_is_not_held_for_nothing(shop: Shop) -> None:
    guard = OneIsBusyAtFirst()
    inbox, calls = an_inbox(guard=guard), list[object]()

    @inbox.on("*", batch=2)
    async def charge(messages: list[Message], tx: Any) -> None:
        calls.append([message.data for message in messages])
        for message in messages:
            await shop.ainsert(tx, message.data)

    shop.send(paid(1, key="a"), paid(2, key="b"))
    async with asyncio.timeout(20):
        await shop.receive(inbox)
    assert calls == [[2], [1]]
    assert sorted(await shop.desk.effects()) == ["1", "2"]
    assert (guard.held, len(guard.done)) == (set(), 2)


async def test_an_error_that_is_nobodys_ends_the_reception_loudly(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = an_inbox()
    inbox.on("*")(lambda message, tx: None)

    async def broken(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(MemoryConsumer, "ack", broken)
    shop.send(paid(1))
    with pytest.raises(ZeroDivisionError):
        await InboxWorker(inbox, shop.desk.opened, MemoryConsumer(shop.broker, TOPIC, group="x")).run(until_idle=IDLE)


async def test_a_batch_that_is_being_handled_is_in_hand_however_quiet_the_broker_is(shop: Shop) -> None:
    inbox, calls = an_inbox(), list[int]()

    @inbox.on("*", batch=10)
    async def slow(messages: list[Message], tx: Any) -> None:
        calls.append(len(messages))
        if len(calls) == 1:
            await asyncio.sleep(1)
            raise OSError("not all at once")
        for message in messages:
            await shop.ainsert(tx, message.data)

    shop.send(paid(1), paid(2))
    tally = await shop.reception(inbox).run(until_idle=timedelta(seconds=0.1))
    assert list(await shop.desk.effects()) == ["1", "2"]
    assert tally.done == {"handled": 2}
