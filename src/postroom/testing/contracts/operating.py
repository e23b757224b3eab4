"""What a person asks and does."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Published, Retry
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.testing.contracts._case import MINUTE, NOON, SECOND, StoreCase, a_message, a_relay, put, statuses

PARK = Buried("REJECTED", "never", park=True)
SKIP = Buried("REJECTED", "never", park=False)


class OperatingContract(StoreCase):
    """What `Desk` promises: R4, R25."""

    async def test_counts_agree_with_what_was_put(self, store: Store) -> None:
        relay = await a_relay(store)
        sent, dead, failed = await put(store, "a", "b", "c")
        await relay.settle_each(await relay.claim(), {sent: Published(), dead: PARK, failed: Retry(MINUTE, "TIMEOUT")})
        (flying,) = await put(store, "d")
        assert await relay.seqs() == [flying]
        await put(store, "e", "f")
        counts = await store.ops.counts(now=NOON)
        assert {status: number for status, number in counts.by_status.items() if number} == {
            "published": 1,
            "dead": 1,
            "failed": 1,
            "sending": 1,
            "pending": 2,
        }

    async def test_counts_tell_how_many_wait_for_a_person(self, store: Store) -> None:
        relay = await a_relay(store)
        dead, *_ = await put(store, "a", "a", "a", "b")
        await relay.settle_each(await relay.claim(), {dead: PARK})
        assert (await store.ops.counts(now=NOON)).parked == 2

    async def test_an_empty_outbox_has_no_lag(self, store: Store) -> None:
        counts = await store.ops.counts()
        assert sum(counts.by_status.values()) == 0
        assert counts.lag == timedelta(0)

    async def test_the_lag_is_the_age_of_the_oldest_open_message_that_is_due(self, store: Store) -> None:
        before = utcnow()
        await put(store, "a")
        after = utcnow()
        await store.outbox.put([a_message(key="b", not_before=NOON + MINUTE)])
        counts = await store.ops.counts(now=NOON)
        slack = store.capabilities.time_precision + timedelta(milliseconds=5)
        assert NOON - after - slack <= counts.lag <= NOON - before + slack
        own_clock = await store.ops.counts()
        assert timedelta(0) <= own_clock.lag < MINUTE

    async def test_find_filters_by_id_status_type_and_key(self, store: Store) -> None:
        one, two = a_message(type="order.paid", key="a"), a_message(type="order.sent", key="b")
        await store.outbox.put([one, two])
        assert [record.message for record in await store.ops.find(Query(ids=[two.id]))] == [two]
        assert [record.message for record in await store.ops.find(Query(type="order.paid"))] == [one]
        assert [record.message for record in await store.ops.find(Query(key="b"))] == [two]
        assert len(await store.ops.find(Query(status="pending"))) == 2
        assert len(await store.ops.find(Query(status="dead"))) == 0
        assert len(await store.ops.find(Query(since=utcnow() + MINUTE))) == 0
        assert len(await store.ops.find(Query(since=utcnow() - MINUTE))) == 2

    async def test_find_gives_the_newest_so_many_oldest_first(self, store: Store) -> None:
        written = await put(store, "a", "b", "c", "d")
        assert [record.seq for record in await store.ops.find(Query(limit=2))] == written[2:]
        assert [record.seq for record in await store.ops.find(Query())] == written
        assert await store.ops.find(Query(limit=0)) == []

    async def test_a_record_says_who_has_it_in_flight(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store, "relay-a")
        (record,) = await store.ops.find(Query())
        assert (record.owner, record.locked_at) == (None, None)
        await relay.claim()
        (record,) = await store.ops.find(Query())
        assert (record.owner, record.locked_at) == ("relay-a", NOON)

    async def test_a_requeued_dead_letter_goes_again_with_the_same_id(self, store: Store) -> None:
        (seq,) = await put(store, None)
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), SKIP)
        (dead,) = await store.ops.find(Query())
        assert await store.ops.requeue(Query(ids=[dead.message.id])) == 1
        (again,) = await store.ops.find(Query())
        assert (again.status, again.attempts, again.last_error_code) == ("pending", 0, None)
        assert again.message.id == dead.message.id
        assert await relay.seqs() == [seq]

    async def test_requeueing_the_dead_head_frees_its_key_in_order(self, store: Store) -> None:
        dead, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {dead: PARK})
        (later,) = await put(store, "a")
        assert await relay.seqs() == []
        assert await store.ops.requeue(Query(status="dead")) == 1
        assert await relay.drain() == [dead, behind, later]

    async def test_discarding_the_dead_head_frees_its_key(self, store: Store) -> None:
        dead, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {dead: PARK})
        assert await relay.seqs() == []
        assert await store.ops.discard(Query(status="dead"), now=NOON) == 1
        assert await statuses(store, dead) == ["discarded"]
        assert await relay.drain() == [behind]

    async def test_a_key_with_a_dead_head_stays_parked_when_another_message_of_it_is_discarded(
        self, store: Store
    ) -> None:
        dead, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {dead: PARK})
        assert await relay.seqs() == []
        assert await store.ops.discard(Query(key="a", status="pending"), now=NOON) == 1
        await put(store, "a")
        assert await relay.seqs() == []
        assert await statuses(store, dead, behind) == ["dead", "discarded"]

    async def test_a_requeued_failed_message_does_not_wait_any_more(self, store: Store) -> None:
        written = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {written[0]: Retry(MINUTE, "TIMEOUT")})
        assert await store.ops.requeue(Query(status="failed")) == 1
        assert await relay.drain() == written

    async def test_discarding_a_failed_head_frees_its_key(self, store: Store) -> None:
        head, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {head: Retry(MINUTE, "TIMEOUT")})
        assert await relay.seqs() == []
        assert await store.ops.discard(Query(status="failed"), now=NOON) == 1
        assert await relay.drain() == [behind]

    async def test_a_message_in_flight_is_neither_requeued_nor_discarded(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), Retry(SECOND, "TIMEOUT"))
        claims = await relay.claim(now=NOON + SECOND)
        assert await store.ops.requeue(Query(key="a")) == 0
        assert await store.ops.discard(Query(key="a"), now=NOON) == 0
        assert await statuses(store, seq) == ["sending"]
        assert await relay.settle(claims, now=NOON + SECOND) == "settled"

    async def test_a_published_message_is_neither_requeued_nor_discarded(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim())
        assert await store.ops.requeue(Query(key="a")) == 0
        assert await store.ops.discard(Query(key="a"), now=NOON) == 0
        assert await statuses(store, seq) == ["published"]

    async def test_a_requeued_message_under_skip_takes_its_place_again(self, store: Store) -> None:
        (dead,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), SKIP)
        (later,) = await put(store, "a")
        assert await store.ops.requeue(Query(status="dead")) == 1
        assert await relay.drain() == [dead, later]

    async def test_only_what_stands_before_is_discarded_when_that_is_asked(self, store: Store) -> None:
        first, second, third = await put(store, "a", "b", "c")
        assert await store.ops.discard(Query(status="pending", before=third), now=NOON) == 2
        assert await statuses(store, first, second, third) == ["discarded", "discarded", "pending"]

    async def test_ids_are_found_by_where_they_lie(self, store: Store) -> None:
        first, second, third = (UUID(f"01890000-0000-7000-8000-00000000000{n}") for n in (1, 2, 3))
        await store.outbox.put([Message("a", id=id_) for id_ in (third, first, second)])
        assert list(await store.ops.ids_between(first, second, limit=9)) == [first, second]
        assert len(await store.ops.ids_between(first, third, limit=2)) == 2
        assert list(await store.ops.ids_between(UUID(int=0), UUID(int=1), limit=9)) == []

    async def test_the_store_has_a_clock_of_its_own_for_repairs(self, store: Store) -> None:
        await put(store, "a")
        assert await store.ops.discard(Query(key="a")) == 1
        (record,) = await store.ops.find(Query())
        assert record.settled_at is not None
        assert abs(record.settled_at - utcnow()) < MINUTE

    # ── many ──

    async def _bury_many(self, store: Store, number: int) -> None:
        await store.outbox.put([a_message(key=f"k-{each % 50}", data=each) for each in range(number)])
        relay = await a_relay(store)
        while claims := await relay.claim(limit=number):
            await relay.settle(claims, Buried("REJECTED", "never", park=False))

    async def test_many_are_requeued_some_at_a_time(self, store: Store) -> None:
        await self._bury_many(store, 1_100)
        heard: list[int] = []
        assert await store.ops.requeue(Query(status="dead"), told=heard.append) == 1_100
        assert heard == [1_000, 1_100]
        assert (await store.ops.counts(now=NOON)).by_status == {"pending": 1_100}

    async def test_many_are_discarded_some_at_a_time(self, store: Store) -> None:
        await self._bury_many(store, 1_100)
        heard: list[int] = []
        assert await store.ops.discard(Query(status="dead"), told=heard.append, now=NOON) == 1_100
        assert heard == [1_000, 1_100]
        assert (await store.ops.counts(now=NOON)).by_status == {"discarded": 1_100}

    async def test_a_requeue_that_ends_in_between_has_done_what_it_said(self, store: Store) -> None:
        await self._bury_many(store, 1_100)

        def stop(_: int) -> None:
            raise KeyError

        with pytest.raises(KeyError):
            await store.ops.requeue(Query(status="dead"), told=stop)
        assert (await store.ops.counts(now=NOON)).by_status == {"pending": 1_000, "dead": 100}
        dead = await store.ops.find(Query(status="dead"))
        assert [record.message.data for record in dead] == list(range(1_000, 1_100)), "the oldest go first"

    async def test_a_long_list_is_read_page_by_page(self, store: Store) -> None:
        seqs = await put(store, *"abcdefg")
        pages, before = list[list[int]](), None
        while page := [record.seq for record in await store.ops.find(Query(before=before, limit=3))]:
            pages.append(page)
            assert len(pages) <= len(seqs), f"the list has no end: {pages}"
            before = page[0]
        assert pages == [seqs[4:], seqs[1:4], seqs[:1]]
