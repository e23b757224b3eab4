"""What a person may do to messages: plans, refusals, and what comes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from postroom.clock import utcnow
from postroom.contracts.inbox import DeadDelivery, DeadQuery
from postroom.contracts.ops import Progress, Query, Record, Status
from postroom.contracts.outbox import Buried, Published, Retry, Verdict
from postroom.contracts.store import Store
from postroom.ops.repair import (
    PAGE,
    DeliveryPlan,
    Done,
    Plan,
    Refusal,
    apply,
    plan_discard,
    plan_redelivery,
    plan_requeue,
    redeliver,
)
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import MINUTE, a_message, a_relay

MONTH = timedelta(days=30)
UNKNOWN = UUID("018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
VERDICTS: dict[Status, Verdict] = {"dead": Buried("X"), "failed": Retry(MINUTE, "X"), "published": Published()}


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "post.db")
    async with opened:
        await opened.schema.migrate()
        yield opened


async def fill(store: Store, *statuses: Status) -> list[UUID]:
    """A message of each status, each with a key of its own; their ids."""
    messages = [a_message(key=f"k{number}") for number in range(len(statuses))]
    wanted = {message.id: status for message, status in zip(messages, statuses, strict=True)}
    await store.outbox.put(messages)
    relay = await a_relay(store)
    claims = await relay.claim(limit=len(messages))
    every = [claimed for claim in claims for claimed in claim.messages]
    settled = [claim for claim in claims if "sending" not in {wanted[each.message.id] for each in claim.messages}]
    verdicts = {each.seq: VERDICTS[wanted[each.message.id]] for each in every if wanted[each.message.id] in VERDICTS}
    await relay.settle_each(settled, verdicts)
    return [message.id for message in messages]


async def statuses(store: Store) -> list[Status]:
    return [record.status for record in await store.ops.find(Query())]


async def requeue_planned(store: Store, query: Query, **options: Any) -> Plan:
    found = await plan_requeue(store, query, **({"remembered": MONTH} | options))
    assert isinstance(found, Plan)
    return found


async def discard_planned(store: Store, query: Query, **options: Any) -> Plan:
    found = await plan_discard(store, query, **options)
    assert isinstance(found, Plan)
    return found


class Counting(MemoryOutbox):
    """Counts how many messages it was asked to read."""

    read = 0

    async def find(self, query: Query) -> Sequence[Record]:
        found = await super().find(query)
        self.read += len(found)
        return found


# ── which messages ──


@pytest.mark.parametrize("query", [Query(), Query(type="order.paid"), Query(key="k0")], ids=["all", "type", "key"])
async def test_a_query_that_names_neither_ids_nor_a_status_is_refused(store: Store, query: Query) -> None:
    await fill(store, "dead")
    for found in (await plan_requeue(store, query, remembered=None), await plan_discard(store, query)):
        assert found == Refusal("No messages were named: give their ids, or a status")


async def test_a_plan_says_to_which_it_can_be_done_and_why_not_to_the_others(store: Store) -> None:
    dead, failed, pending, published, flying = await fill(store, "dead", "failed", "pending", "published", "sending")
    ids = (dead, failed, pending, published, flying, UNKNOWN)
    again = await requeue_planned(store, Query(ids=ids))
    assert [record.message.id for record in again.able] == [dead, failed]
    assert again.left_alone == {
        pending: "pending",
        published: "published",
        flying: "in flight",
        UNKNOWN: "not in this outbox",
    }
    gone = await discard_planned(store, Query(ids=ids))
    assert [record.message.id for record in gone.able] == [dead, failed, pending]
    assert pending not in gone.left_alone


async def test_a_plan_changes_nothing(store: Store) -> None:
    await fill(store, "dead", "failed")
    await requeue_planned(store, Query(status="dead"), look=True)
    await discard_planned(store, Query(status="failed"), exactly=True)
    assert await statuses(store) == ["dead", "failed"]


async def test_many_are_read_a_page_at_a_time_oldest_first_and_without_their_bodies(store: Store) -> None:
    await store.outbox.put([a_message(key=f"k{number}", data=number) for number in range(2 * PAGE + 1)])
    seen = (await discard_planned(store, Query(status="pending"), look=True)).seen
    assert [record.seq for record in seen] == sorted({record.seq for record in seen})
    assert len(seen) == 2 * PAGE + 1
    assert all(record.message.body is None for record in seen)


async def test_messages_are_read_once_and_only_where_a_rule_or_a_person_asks() -> None:
    counting = Counting()
    async with MemoryStore(counting) as store:
        (dead,) = await fill(store, "dead")
        for query, remembered, look, read in [
            (Query(status="dead"), None, False, 0),
            (Query(status="dead"), None, True, 1),
            (Query(status="dead"), MONTH, True, 1),
            (Query(ids=[dead]), MONTH, False, 1),
        ]:
            counting.read = 0
            await requeue_planned(store, query, remembered=remembered, look=look)
            assert counting.read == read, (query, remembered, look)
        counting.read = 0
        done = await apply(store, await discard_planned(store, Query(status="dead")))
        assert (done.count, counting.read) == (1, 0)


# ── doing it ──


async def test_what_was_planned_is_done(store: Store) -> None:
    dead, failed, published = await fill(store, "dead", "failed", "published")
    done = await apply(store, await requeue_planned(store, Query(ids=(dead, published))))
    assert (done.count, done.is_all, done.moved_meanwhile) == (1, False, False)
    assert (await apply(store, await discard_planned(store, Query(ids=(failed,))))).is_all
    assert await statuses(store) == ["pending", "discarded", "published"]


async def test_what_moved_between_the_plan_and_the_deed_is_told(store: Store) -> None:
    dead, other = await fill(store, "dead", "dead")
    plan = await requeue_planned(store, Query(ids=(dead, other)))
    await store.ops.discard(Query(ids=[dead]))
    done = await apply(store, plan)
    assert (done.count, done.is_all, done.moved_meanwhile) == (1, False, True)
    assert await statuses(store) == ["discarded", "pending"]


async def test_an_exact_plan_is_about_the_messages_that_were_seen(store: Store) -> None:
    await fill(store, "pending")
    plan = await discard_planned(store, Query(status="pending"), exactly=True)
    await store.outbox.put([a_message(key="late")])
    assert (await apply(store, plan)).count == 1
    assert await statuses(store) == ["discarded", "pending"]


async def test_an_exact_plan_of_no_message_touches_none(store: Store) -> None:
    plan = await discard_planned(store, Query(status="dead"), exactly=True)
    await fill(store, "dead")
    assert await apply(store, plan) == Done(plan, 0)
    assert await statuses(store) == ["dead"]


async def test_how_far_it_is_is_told(store: Store) -> None:
    await fill(store, "dead", "dead")
    heard: list[int] = []
    told: Progress = heard.append
    await apply(store, await requeue_planned(store, Query(status="dead")), told=told)
    assert heard[-1] == 2


# ── not what inboxes have forgotten ──


async def test_what_is_older_than_inboxes_remember_is_refused_unless_a_person_says_so(store: Store) -> None:
    first, _ = await fill(store, "dead", "dead")
    later = utcnow() + MONTH + MINUTE
    for options in ({}, {"look": True}):
        found = await plan_requeue(store, Query(status="dead"), remembered=MONTH, now=later, **options)
        assert found == Refusal(
            f"2 messages of these, such as {first}, are older than inboxes remember (30d): if it was delivered then, it would "
            "be handled again. Nothing was requeued"
        )
    forced = await requeue_planned(store, Query(status="dead"), remembered=None, now=later)
    assert (await apply(store, forced)).count == 2


async def test_how_long_inboxes_remember_is_as_configured(store: Store) -> None:
    await fill(store, "dead")
    later = utcnow() + timedelta(days=8)
    assert isinstance(await plan_requeue(store, Query(status="dead"), remembered=MONTH, now=later), Plan)
    found = await plan_requeue(store, Query(status="dead"), remembered=timedelta(days=7), now=later)
    assert isinstance(found, Refusal)
    assert "(7d)" in found.why


async def test_an_old_message_that_cannot_be_requeued_anyway_refuses_nothing(store: Store) -> None:
    dead, published = await fill(store, "dead", "published")
    found = await plan_requeue(store, Query(ids=(published,)), remembered=MONTH, now=utcnow() + 2 * MONTH)
    assert isinstance(found, Plan)
    assert isinstance(
        await plan_requeue(store, Query(ids=(dead,)), remembered=MONTH, now=utcnow() + 2 * MONTH), Refusal
    )


async def test_an_old_message_that_dies_after_the_look_is_left_alone(store: Store) -> None:
    (pending,) = await fill(store, "pending")
    (record,) = await store.ops.find(Query(ids=[pending]))
    plan = await requeue_planned(store, Query(status="dead"), now=record.created_at + MONTH + MINUTE)
    relay = await a_relay(store, "late", now=_past(record))
    await relay.settle(await relay.claim(now=_past(record)), Buried("X"), now=_past(record))
    assert await statuses(store) == ["dead"]
    assert (await apply(store, plan)).count == 0


def _past(record: Record) -> datetime:
    """When the lease of the relay that filled the store is over."""
    return datetime(2031, 1, 1, tzinfo=record.created_at.tzinfo)


# ── dead deliveries ──


class Inbox:
    """The part of an inbox's store that deals with dead deliveries."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.asked: list[DeadQuery] = []

    async def dead(self, query: DeadQuery) -> Sequence[DeadDelivery]:
        self.asked.append(query)
        return []

    async def requeue(self, query: DeadQuery) -> int:
        self.asked.append(query)
        return self.number


async def test_deliveries_are_named_before_they_go_again() -> None:
    inbox: Any = Inbox(3)
    assert await plan_redelivery(inbox, DeadQuery()) == Refusal(
        "No deliveries were named: give their ids, or a consumer, type, key or code"
    )
    assert inbox.asked == []


async def test_deliveries_go_again_and_are_looked_at_only_for_a_person() -> None:
    inbox: Any = Inbox(3)
    query = DeadQuery(consumer="billing")
    plan = await plan_redelivery(inbox, query)
    assert plan == DeliveryPlan(query=query)
    assert inbox.asked == []
    assert await redeliver(inbox, plan) == 3
    await plan_redelivery(inbox, query, look=True)
    assert inbox.asked == [query, DeadQuery(consumer="billing", requeued=False)]


async def test_ids_of_which_none_is_dead_are_refused() -> None:
    inbox: Any = Inbox(0)
    plan = await plan_redelivery(inbox, DeadQuery(ids=[UNKNOWN]))
    assert isinstance(plan, DeliveryPlan)
    assert await redeliver(inbox, plan) == Refusal("Nothing was requeued: none of these ids is dead here")
