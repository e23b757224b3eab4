"""Messages on their way out: which are claimed, and when."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from postroom.clock import utcnow
from postroom.contracts.outbox import Expired, Published, Retry, Settlement, Unsent
from postroom.contracts.store import Store
from postroom.testing.contracts._case import (
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    StoreCase,
    a_message,
    a_relay,
    lost,
    put,
    seqs,
    statuses,
)

RETRY = Retry(10 * SECOND, "TIMEOUT", "no answer")


class ClaimingContract(StoreCase):
    """What `claim` promises: R11 to R23, with `settling`."""

    # ── claiming ──

    async def test_a_message_is_claimed_once(self, store: Store) -> None:
        written = await put(store, "a")
        relay = await a_relay(store)
        assert await relay.seqs() == written
        assert await relay.seqs() == []

    async def test_a_claim_names_its_lane_epoch_and_owner(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store)
        (claim,) = await relay.claim()
        assert (claim.owner, relay.lanes[claim.lane]) == (relay.owner, claim.epoch)
        assert claim.lost == 0
        assert [claimed.attempts for claimed in claim.messages] == [0]

    async def test_the_oldest_of_a_key_goes_first(self, store: Store) -> None:
        written = await put(store, *["a"] * 9)
        relay = await a_relay(store)
        assert await relay.seqs(limit=2) == written[:2]

    async def test_keys_and_messages_without_one_do_not_wait_for_each_other(self, store: Store) -> None:
        written = await put(store, "a", "b", None, None, "c")
        relay = await a_relay(store)
        assert await relay.seqs() == written

    async def test_the_limit_is_kept(self, store: Store) -> None:
        await put(store, *(f"k{number}" for number in range(12)))
        relay = await a_relay(store)
        assert len(await relay.seqs(limit=5)) == 5
        assert len(await relay.seqs(limit=100)) <= 7

    async def test_one_busy_lane_does_not_starve_the_others(self, store: Store) -> None:
        await put(store, *["busy"] * 20)
        (quiet,) = await put(store, "quiet")
        relay = await a_relay(store)
        assert quiet in await relay.seqs(limit=4)

    async def test_the_first_of_every_lane_goes_before_the_second_of_any(self, store: Store) -> None:
        keys = [f"k{number}" for number in range(12)]
        await put(store, *keys, *keys, *keys)
        relay = await a_relay(store)
        everywhere = await relay.claim()
        await relay.settle(everywhere, Unsent())
        claims = await relay.claim(limit=len(everywhere))
        assert [len(claim.messages) for claim in claims] == [1] * len(everywhere)

    async def test_a_lane_of_another_owner_gives_nothing(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store, "relay-a")
        assert list(await store.outbox.claim("relay-b", relay.lanes, limit=9, now=NOON)) == []

    async def test_a_lane_at_an_older_epoch_gives_nothing(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store, "relay-a")
        older = dict(relay.lanes)
        await relay.take(now=NOON + 2 * LEASE)
        assert list(await store.outbox.claim("relay-a", older, limit=9, now=NOON + 2 * LEASE)) == []
        assert len(await relay.claim(now=NOON + 2 * LEASE)) == 1

    async def test_a_lane_gives_nothing_more_while_a_claim_of_it_is_in_flight(self, store: Store) -> None:
        first, second = await put(store, "a", "a")
        relay = await a_relay(store)
        claims = await relay.claim(limit=1)
        assert seqs(claims) == [first]
        assert await relay.seqs() == []
        await relay.settle(claims)
        assert await relay.seqs() == [second]

    async def test_two_claims_at_once_share_nothing(self, store: Store) -> None:
        written = await put(store, *(f"k{number}" for number in range(30)))
        relay = await a_relay(store)
        both = await asyncio.gather(relay.seqs(limit=15), relay.seqs(limit=15))
        came = both[0] + both[1]
        assert len(came) == len(set(came))
        assert set(came) <= set(written)

    async def test_claim_ids_are_never_used_again(self, store: Store) -> None:
        relay = await a_relay(store)
        used: list[int] = []
        for _ in range(3):
            await put(store, "a")
            claims = await relay.claim()
            used += [claim.id for claim in claims]
            await relay.settle(claims)
        assert len(set(used)) == 3

    async def test_the_store_has_a_clock_of_its_own_for_claims(self, store: Store) -> None:
        soon = a_message(key="a", not_before=utcnow() + timedelta(hours=1))
        await store.outbox.put([soon, a_message(key="b")])
        taken = await store.lanes.take("relay-a", limit=10_000, lease=MINUTE, lost=lost)
        claims = await store.outbox.claim("relay-a", {lane.lane: lane.epoch for lane in taken}, limit=9)
        assert [claimed.message.key for claim in claims for claimed in claim.messages] == ["b"]
        answers = await store.outbox.settle([Settlement(claim, {}) for claim in claims])
        assert set(answers.values()) == {"settled"}

    # ── time ──

    async def test_a_message_does_not_go_before_its_time(self, store: Store) -> None:
        await store.outbox.put([a_message(key="a", not_before=NOON + MINUTE)])
        relay = await a_relay(store)
        assert await relay.seqs(now=NOON + MINUTE - SECOND) == []
        assert len(await relay.seqs(now=NOON + MINUTE)) == 1

    async def test_a_message_that_is_not_due_does_not_hold_its_key(self, store: Store) -> None:
        await store.outbox.put([a_message(key="a", not_before=NOON + MINUTE, data="later")])
        await store.outbox.put([a_message(key="a", data="now")])
        relay = await a_relay(store)
        claims = await relay.claim()
        assert [claimed.message.data for claim in claims for claimed in claim.messages] == ["now"]
        await relay.settle(claims)
        assert len(await relay.claim(now=NOON + MINUTE)) == 1

    async def test_a_message_joins_its_keys_line_when_it_becomes_due(self, store: Store) -> None:
        await store.outbox.put([a_message(key="a", not_before=NOON + MINUTE, data="first")])
        relay = await a_relay(store)
        assert await relay.seqs() == []
        await store.outbox.put([a_message(key="a", data="second")])
        (claim,) = await relay.claim(now=NOON + MINUTE)
        assert [claimed.message.data for claimed in claim.messages] == ["first", "second"]

    async def test_due_messages_keep_their_order_when_there_are_more_than_the_limit(self, store: Store) -> None:
        times = [NOON + number * SECOND for number in (30, 20, 10)]
        await store.outbox.put([a_message(key="a", not_before=time, data=number) for number, time in enumerate(times)])
        relay = await a_relay(store)
        assert await relay.seqs() == []
        await store.outbox.put([a_message(key="a", data=3)])
        came = []
        for _ in range(4):
            claims = await relay.claim(limit=1, now=NOON + MINUTE)
            came += [claimed.message.data for claim in claims for claimed in claim.messages]
            await relay.settle(claims, now=NOON + MINUTE)
        assert came == [0, 1, 2, 3]

    async def test_an_expired_message_is_marked_and_settled_as_such(self, store: Store) -> None:
        await store.outbox.put([a_message(key="a", expires_at=NOON + MINUTE)])
        await store.outbox.put([a_message(key="a")])
        relay = await a_relay(store)
        (claim,) = await relay.claim(now=NOON + MINUTE)
        assert [claimed.expired for claimed in claim.messages] == [True, False]
        first, second = seqs([claim])
        await relay.settle_each([claim], {first: Expired(), second: Published()}, now=NOON + MINUTE)
        assert await statuses(store, first, second) == ["expired", "published"]

    async def test_a_look_costs_nothing_and_sees_what_could_go(self, store: Store) -> None:
        relay = await a_relay(store)
        assert not await store.outbox.peek(relay.lanes, now=NOON)
        await put(store, "a")
        assert await store.outbox.peek(relay.lanes, now=NOON)
        assert await store.outbox.peek(relay.lanes)
        await relay.settle(await relay.claim(), RETRY)
        assert not await store.outbox.peek(relay.lanes, now=NOON + 9 * SECOND)
        assert await store.outbox.peek(relay.lanes, now=NOON + 10 * SECOND)
        await relay.settle(await relay.claim(now=NOON + 10 * SECOND), now=NOON + 10 * SECOND)
        await store.outbox.put([a_message(not_before=NOON + MINUTE)])
        assert await relay.seqs(now=NOON + 10 * SECOND) == []
        assert not await store.outbox.peek(relay.lanes, now=NOON + MINUTE - SECOND)
        assert await store.outbox.peek(relay.lanes, now=NOON + MINUTE)

    # ── answers that were lost ──

    async def test_a_claim_whose_answer_was_lost_is_dropped_untouched(self, store: Store) -> None:
        written = await put(store, "a", "b")
        relay = await a_relay(store)
        lost_claims = await relay.claim()
        claims = await store.outbox.claim(relay.owner, relay.lanes, limit=100, doubtful=relay.lanes, now=NOON)
        assert seqs(claims) == written
        assert {claimed.attempts for claim in claims for claimed in claim.messages} == {0}
        assert await relay.settle(lost_claims) == "already"
        assert await statuses(store, *written) == ["sending", "sending"]
        assert await relay.settle(claims) == "settled"

    async def test_only_in_doubtful_lanes_is_anything_dropped(self, store: Store) -> None:
        await put(store, "a", "b")
        relay = await a_relay(store)
        kept, orphan = await relay.claim()
        claims = await store.outbox.claim(relay.owner, relay.lanes, limit=100, doubtful=[orphan.lane], now=NOON)
        assert [claim.lane for claim in claims] == [orphan.lane]
        assert await relay.settle([kept]) == "settled"
        assert await statuses(store, *seqs([kept])) == ["published"]

    async def test_every_doubt_is_looked_into_whatever_the_limit(self, store: Store) -> None:
        written = await put(store, "a", "b")
        relay = await a_relay(store)
        await relay.claim()
        first = await store.outbox.claim(relay.owner, relay.lanes, limit=1, doubtful=relay.lanes, now=NOON)
        assert len(seqs(first)) == 1
        assert sorted(seqs(first) + await relay.seqs()) == written

    async def test_a_doubt_about_anothers_lane_changes_nothing(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store, "relay-a")
        claims = await relay.claim()
        older = {lane: epoch - 1 for lane, epoch in relay.lanes.items()}
        for owner, lanes in (("relay-b", relay.lanes), ("relay-a", older)):
            assert await store.outbox.claim(owner, lanes, limit=100, doubtful=relay.lanes, now=NOON) == []
        assert await relay.settle(claims) == "settled"

    async def test_a_settle_whose_answer_was_lost_is_not_undone_by_the_doubt(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store)
        await relay.settle(await relay.claim())
        assert await store.outbox.claim(relay.owner, relay.lanes, limit=100, doubtful=relay.lanes, now=NOON) == []
        assert await statuses(store, seq) == ["published"]
