"""Messages on their way out: what becomes of them when they are settled."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Published, Retry, Settlement, Unsent
from postroom.contracts.store import Store
from postroom.testing.contracts._case import (
    HOSTILE_TEXTS,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    StoreCase,
    a_key_beside,
    a_message,
    a_relay,
    put,
    seqs,
    statuses,
)

RETRY = Retry(10 * SECOND, "TIMEOUT", "no answer")
PARK = Buried("REJECTED", "never", park=True)
SKIP = Buried("REJECTED", "never", park=False)


class SettlingContract(StoreCase):
    """What `settle` promises: R11 to R23, with `claiming`."""

    # ── settling ──

    async def test_a_settled_message_does_not_come_back(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        assert await relay.settle(await relay.claim()) == "settled"
        assert await statuses(store, seq) == ["published"]
        assert await relay.seqs() == []
        (record,) = await store.ops.find(Query())
        assert (record.attempts, record.settled_at) == (1, NOON)

    async def test_settling_twice_counts_once(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store)
        claims = await relay.claim()
        assert await relay.settle(claims, RETRY) == "settled"
        assert await relay.settle(claims, RETRY) == "already"
        (record,) = await store.ops.find(Query())
        assert record.attempts == 1

    async def test_a_late_repeat_of_a_settle_does_not_touch_a_newer_claim(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        first = await relay.claim()
        await relay.settle(first, Retry(timedelta(0), "TIMEOUT"))
        second = await relay.claim()
        assert seqs(second) == [seq]
        assert await relay.settle(first) == "already"
        assert await statuses(store, seq) == ["sending"]

    async def test_each_claim_is_settled_or_lost_by_itself(self, store: Store) -> None:
        first, second = await put(store, "a", "b")
        relay = await a_relay(store)
        claims = await relay.claim()
        by_seq = {seqs([claim])[0]: claim for claim in claims}
        await relay.settle([by_seq[first]])
        answers = await store.outbox.settle(
            [Settlement(by_seq[first], {first: RETRY}), Settlement(by_seq[second], {second: Published()})], now=NOON
        )
        assert answers == {by_seq[first].id: "already", by_seq[second].id: "settled"}
        assert await statuses(store, first, second) == ["published", "published"]

    async def test_what_was_not_sent_is_untouched_and_comes_again(self, store: Store) -> None:
        written = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), Unsent())
        for record in await store.ops.find(Query()):
            assert (record.status, record.attempts) == ("pending", 0)
        assert await relay.seqs() == written

    async def test_an_error_is_kept_and_cut(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), Retry(SECOND, "TIMEOUT", "x" * 2000))
        (record,) = await store.ops.find(Query())
        assert (record.last_error_code, record.last_error) == ("TIMEOUT", "x" * 512)

    # ── retry: the key waits, others go on ──

    async def test_a_failed_message_waits_until_it_is_due(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), RETRY)
        assert await statuses(store, seq) == ["failed"]
        assert await relay.seqs(now=NOON + 9 * SECOND) == []
        (claim,) = await relay.claim(now=NOON + 10 * SECOND)
        assert [claimed.attempts for claimed in claim.messages] == [1]

    async def test_a_failed_message_without_a_key_waits_alone(self, store: Store) -> None:
        first, second = await put(store, None, None)
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {first: RETRY, second: Published()})
        (third,) = await put(store, None)
        assert await relay.drain() == [third]
        assert await relay.drain(now=NOON + 10 * SECOND) == [first]

    async def test_a_key_waits_as_a_whole_while_its_head_waits(self, store: Store) -> None:
        first, second = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {first: RETRY})
        (third, other) = await put(store, "a", "b")
        assert await relay.drain() == [other]
        assert await relay.drain(now=NOON + 10 * SECOND) == [first, second, third]

    async def test_a_message_written_while_its_key_waits_does_not_pass(self, store: Store) -> None:
        (first,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), RETRY)
        (second,) = await put(store, "a")
        assert await relay.seqs(now=NOON + 5 * SECOND) == []
        assert await relay.drain(now=NOON + 10 * SECOND) == [first, second]

    async def test_a_key_waits_again_when_its_head_fails_again(self, store: Store) -> None:
        written = await put(store, "a", "a", "a")
        relay = await a_relay(store)
        now: datetime = NOON
        for _ in range(3):
            claims = await relay.claim(now=now)
            assert seqs(claims)[0] == written[0]
            await relay.settle_each(claims, {written[0]: RETRY}, now=now)
            assert await relay.seqs(now=now + 9 * SECOND) == []
            now += 10 * SECOND
        assert await relay.drain(now=now) == written

    async def test_a_key_that_recovered_flows_as_before(self, store: Store) -> None:
        await put(store, "a", "a")
        relay = await a_relay(store)
        claims = await relay.claim()
        await relay.settle_each(claims, {seqs(claims)[0]: RETRY})
        now = NOON + MINUTE
        await relay.drain(now=now)
        later = await put(store, "a", "a")
        assert await relay.seqs(now=now) == later

    async def test_a_key_that_recovered_does_not_wait_again_when_the_clock_is_set_back(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), RETRY)
        await relay.settle(await relay.claim(now=NOON + 10 * SECOND), now=NOON + 10 * SECOND)
        later = await put(store, "a")
        assert await relay.seqs(now=NOON + 9 * SECOND) == later

    async def test_many_waiting_messages_do_not_hide_the_others_behind_them(self, store: Store) -> None:
        relay = await a_relay(store)
        beside = await a_key_beside(relay, "a")
        blocked = await put(store, *["a"] * 60)
        await relay.settle_each(await relay.claim(limit=1), {blocked[0]: RETRY})
        (lane_mate,) = await put(store, beside)
        assert await relay.drain() == [lane_mate]
        assert await relay.drain(now=NOON + MINUTE) == blocked

    async def test_a_long_wait_is_drained_in_order_while_more_comes_in(self, store: Store) -> None:
        written = await put(store, *["a"] * 8)
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(limit=1), {written[0]: RETRY})
        assert await relay.seqs() == []
        written += await put(store, "a", "a")
        assert await relay.drain(limit=2, now=NOON + MINUTE) == written

    async def test_future_messages_in_a_waiting_key_let_no_later_one_pass(self, store: Store) -> None:
        (head,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), RETRY)
        await store.outbox.put([a_message(key="a", not_before=NOON + 10 * MINUTE) for _ in range(3)])
        (behind,) = await put(store, "a")
        assert await relay.seqs() == []
        claims = await relay.claim(limit=1, now=NOON + MINUTE)
        assert seqs(claims) == [head]
        await relay.settle(claims, now=NOON + MINUTE)
        (last,) = await put(store, "a")
        assert await relay.drain(limit=2, now=NOON + MINUTE) == [behind, last]
        assert len(await relay.drain(now=NOON + 10 * MINUTE)) == 3

    async def test_the_limit_is_reached_past_messages_that_have_to_wait(self, store: Store) -> None:
        relay = await a_relay(store)
        beside = await a_key_beside(relay, "a")
        (first,) = await put(store, "a")
        await store.outbox.put([a_message(key=beside, not_before=NOON + MINUTE) for _ in range(9)])
        (second,) = await put(store, "a")
        assert await relay.seqs(limit=2) == [first, second]

    async def test_a_due_message_is_not_passed_when_others_of_its_lane_became_due_before_it(self, store: Store) -> None:
        relay = await a_relay(store)
        beside = await a_key_beside(relay, "a")
        await store.outbox.put([a_message(key=beside, not_before=NOON + MINUTE) for _ in range(3)])
        assert await relay.seqs() == []
        await put(store, beside)
        await relay.settle(await relay.claim(), PARK)
        await store.outbox.put([a_message(key="a", not_before=NOON + MINUTE)])
        assert await relay.seqs() == []
        await store.outbox.put([a_message(key="a")])
        due = [record.seq for record in await store.ops.find(Query(key="a", status="pending"))]
        assert await relay.drain(limit=1, now=NOON + 2 * MINUTE) == due

    async def test_an_unavailable_broker_spends_no_attempt(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), Retry(10 * SECOND, "UNAVAILABLE", spent=False))
        (record,) = await store.ops.find(Query())
        assert (record.attempts, record.status, record.last_error_code) == (0, "pending", "UNAVAILABLE")
        assert await relay.seqs(now=NOON + 9 * SECOND) == []
        assert await relay.seqs(now=NOON + 10 * SECOND) == [seq]

    # ── dead: park or skip ──

    async def test_a_dead_head_parks_its_key(self, store: Store) -> None:
        dead, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {dead: PARK})
        (later, other) = await put(store, "a", "b")
        assert await relay.drain(now=NOON + 1000 * MINUTE) == [other]
        assert await statuses(store, dead, behind, later) == ["dead", "pending", "pending"]
        parked = {record.seq: record.parked for record in await store.ops.find(Query())}
        assert parked == {dead: True, behind: True, later: True, other: False}

    async def test_a_dead_head_that_skips_lets_its_key_go_on(self, store: Store) -> None:
        dead, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {dead: SKIP})
        assert await relay.drain() == [behind]
        assert await statuses(store, dead) == ["dead"]

    async def test_a_head_that_dies_after_retries_lets_its_key_go_on_when_it_skips(self, store: Store) -> None:
        dead, behind = await put(store, "a", "a")
        relay = await a_relay(store)
        await relay.settle_each(await relay.claim(), {dead: RETRY})
        assert await relay.seqs() == []
        now = NOON + 10 * SECOND
        await relay.settle_each(await relay.claim(now=now), {dead: SKIP}, now=now)
        assert await relay.drain(now=now) == [behind]

    async def test_a_dead_message_without_a_key_parks_nothing(self, store: Store) -> None:
        (dead,) = await put(store, None)
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), PARK)
        (other,) = await put(store, None)
        assert await relay.seqs() == [other]
        (record, _) = await store.ops.find(Query())
        assert (record.seq, record.status, record.parked) == (dead, "dead", False)

    # ── text from outside: an error that could not be written down would be met again at each try ──

    @pytest.mark.parametrize("text", HOSTILE_TEXTS)
    async def test_an_error_of_any_text_is_settled(self, store: Store, text: tuple[str, str]) -> None:
        said, kept = text
        await put(store, "a")
        relay = await a_relay(store)
        code = f"CODE {said[:20]}"
        assert await relay.settle(await relay.claim(), Retry(SECOND, code, said)) == "settled"
        (record,) = await store.ops.find(Query())
        assert record.last_error == kept
        assert await relay.settle(await relay.claim(now=NOON + SECOND), Buried(code, said)) == "settled"
        (record,) = await store.ops.find(Query())
        assert (record.status, record.last_error) == ("dead", kept)
        assert record.last_error_code is not None
        assert record.last_error_code.isprintable()

    async def test_what_was_lost_is_let_go_whatever_is_said_of_it(self, store: Store) -> None:
        await put(store, "a")
        for number in range(3):  # lost alone, and not for the first time: only then it is buried (R8)
            now = NOON + number * 2 * LEASE
            relay = await a_relay(store, f"relay-{number}", now=now)
            assert await store.outbox.claim(relay.owner, relay.lanes, limit=9, alone=True, now=now + 40 * SECOND)
        said = Buried("CRASH_LOOP", "half a pair \ud800 and \x00")
        await store.lanes.take("heir", limit=10_000, lease=LEASE, lost=lambda _: said, now=NOON + 6 * LEASE)
        (record,) = await store.ops.find(Query())
        assert (record.status, record.last_error) == ("dead", r"half a pair \ud800 and \x00")
