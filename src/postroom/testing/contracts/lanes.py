"""Who may send what."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Retry, Unsent
from postroom.contracts.store import Store
from postroom.testing.contracts._case import (
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    Relay,
    StoreCase,
    a_message,
    a_relay,
    lost,
    put,
    seqs,
    statuses,
)


class LanesContract(StoreCase):
    """What `Lanes` promises: R5 to R10, R24."""

    async def test_every_lane_is_free_at_first(self, store: Store) -> None:
        lanes = await store.lanes.all()
        assert [lane.lane for lane in lanes] == list(range(len(lanes)))
        assert {lane.owner for lane in lanes} == {None}

    async def test_a_lane_has_one_owner(self, store: Store) -> None:
        first = await a_relay(store, "relay-a")
        assert len(first.lanes) == len(await store.lanes.all())
        assert await store.lanes.take("relay-b", limit=1, lease=LEASE, lost=lost, now=NOON) == []

    async def test_no_more_lanes_are_taken_than_asked_for(self, store: Store) -> None:
        taken = await store.lanes.take("relay-a", limit=3, lease=LEASE, lost=lost, now=NOON)
        assert len(taken) == 3
        assert {lane.owner for lane in taken} == {"relay-a"}
        assert {lane.lease_until for lane in taken} == {NOON + LEASE}

    async def test_a_lane_is_taken_over_when_its_lease_ran_out_and_not_before(self, store: Store) -> None:
        await a_relay(store, "relay-a")
        assert await store.lanes.take("relay-b", limit=9, lease=LEASE, lost=lost, now=NOON + LEASE - SECOND) == []
        taken = await store.lanes.take("relay-b", limit=9, lease=LEASE, lost=lost, now=NOON + LEASE + SECOND)
        assert len(taken) == 9

    async def test_the_lanes_of_an_owner_known_to_be_gone_are_taken_at_once(self, store: Store) -> None:
        """R5, and all that a take does is done: the epoch grows, and what was in flight is let go (R6)."""
        (seq,) = await put(store, "a")
        dead = await a_relay(store, "relay-a")
        claims = await dead.claim()
        taken = await store.lanes.take(
            "relay-b", limit=10_000, lease=LEASE, lost=lost, gone=["relay-a"], now=NOON + SECOND
        )
        assert {lane.lane: lane.epoch for lane in taken} == {lane: epoch + 1 for lane, epoch in dead.lanes.items()}
        assert {lane.owner for lane in await store.lanes.all()} == {"relay-b"}
        assert await statuses(store, seq) == ["failed"]
        assert await dead.settle(claims, now=NOON + SECOND) == "lost"
        (record,) = await store.ops.find(Query())
        assert (record.attempts, record.last_error_code) == (1, "LEASE_LOST")

    async def test_the_lanes_of_those_who_are_not_gone_wait_for_their_lease(self, store: Store) -> None:
        dead = await store.lanes.take("relay-a", limit=3, lease=LEASE, lost=lost, now=NOON)
        await a_relay(store, "relay-b")
        gone = ["relay-a", "somebody-else"]
        taken = await store.lanes.take("relay-c", limit=10_000, lease=LEASE, lost=lost, gone=gone, now=NOON + SECOND)
        assert {lane.lane for lane in taken} == {lane.lane for lane in dead}

    async def test_the_epoch_grows_with_each_taking(self, store: Store) -> None:
        first = await a_relay(store, "relay-a")
        assert await store.lanes.release("relay-a", first.lanes) == frozenset(first.lanes)
        second = await a_relay(store, "relay-b")
        third = await a_relay(store, "relay-a", now=NOON + 2 * LEASE)
        for lane in first.lanes:
            assert first.lanes[lane] < second.lanes[lane] < third.lanes[lane]

    async def test_a_renewed_lease_holds(self, store: Store) -> None:
        relay = await a_relay(store, "relay-a")
        renewed = await store.lanes.renew("relay-a", relay.lanes, lease=LEASE, now=NOON + LEASE - SECOND)
        assert renewed == frozenset(relay.lanes)
        assert await store.lanes.take("relay-b", limit=9, lease=LEASE, lost=lost, now=NOON + LEASE + SECOND) == []

    async def test_a_lost_lane_cannot_be_renewed(self, store: Store) -> None:
        stale = await a_relay(store, "relay-a")
        await a_relay(store, "relay-b", now=NOON + 2 * LEASE)
        assert await store.lanes.renew("relay-a", stale.lanes, lease=LEASE, now=NOON + 2 * LEASE) == frozenset()
        assert {lane.owner for lane in await store.lanes.all()} == {"relay-b"}

    async def test_a_lane_of_another_owner_cannot_be_renewed(self, store: Store) -> None:
        relay = await a_relay(store, "relay-a")
        assert await store.lanes.renew("relay-b", relay.lanes, lease=LEASE, now=NOON) == frozenset()

    async def test_a_lane_retaken_by_its_old_owner_is_not_renewed_at_the_old_epoch(self, store: Store) -> None:
        relay = await a_relay(store, "relay-a")
        old = dict(relay.lanes)
        await relay.take(now=NOON + 2 * LEASE)
        assert await store.lanes.renew("relay-a", old, lease=LEASE, now=NOON + 2 * LEASE) == frozenset()
        assert await store.lanes.renew("relay-a", relay.lanes, lease=LEASE, now=NOON + 2 * LEASE) == frozenset(
            relay.lanes
        )

    async def test_a_released_lane_is_free_at_once(self, store: Store) -> None:
        first = await a_relay(store, "relay-a")
        assert await store.lanes.release("relay-a", first.lanes) == frozenset(first.lanes)
        second = await a_relay(store, "relay-b")
        assert second.lanes.keys() == first.lanes.keys()

    async def test_a_lane_with_something_in_flight_is_not_released(self, store: Store) -> None:
        await put(store, "a")
        relay = await a_relay(store)
        (claim,) = await relay.claim()
        released = await store.lanes.release(relay.owner, relay.lanes)
        assert released == frozenset(relay.lanes) - {claim.lane}

    async def test_a_lane_of_another_owner_or_epoch_is_not_released(self, store: Store) -> None:
        relay = await a_relay(store, "relay-a")
        assert await store.lanes.release("relay-b", relay.lanes) == frozenset()
        older = {lane: epoch - 1 for lane, epoch in relay.lanes.items()}
        assert await store.lanes.release("relay-a", older) == frozenset()
        assert {lane.owner for lane in await store.lanes.all()} == {"relay-a"}

    async def test_racing_relays_never_share_a_lane(self, store: Store) -> None:
        relays = [Relay(store, f"relay-{number}") for number in range(4)]
        await asyncio.gather(*(relay.take(limit=20) for relay in relays))
        taken = [lane for relay in relays for lane in relay.lanes]
        assert len(taken) == len(set(taken))

    async def test_a_clock_set_back_an_hour_stops_no_relay_that_lives_and_helps_no_other(self, store: Store) -> None:
        written, relay, back = await put(store, "a", "b"), await a_relay(store), NOON - 60 * MINUTE
        claims = await relay.claim(limit=1)
        assert await relay.settle(claims, now=back) == "settled"
        assert await store.lanes.renew("relay-a", relay.lanes, lease=LEASE, now=back) == frozenset(relay.lanes)
        assert await store.lanes.take("relay-b", limit=9, lease=LEASE, lost=lost, now=back + SECOND) == []
        claims += await relay.claim(now=back + SECOND)
        assert seqs(claims) == written
        # From its next beat on a lease counts by the new time: who dies after that is followed as soon as ever.
        heir = await a_relay(store, "relay-b", now=back + LEASE + SECOND)
        assert heir.lanes.keys() == relay.lanes.keys()

    async def test_a_relay_that_died_before_the_clock_was_set_back_is_followed_by_its_old_lease(
        self, store: Store
    ) -> None:
        """Nobody knows that it is dead: to give its lanes away sooner could give them to two."""
        await a_relay(store)
        for now in (NOON - 60 * MINUTE, NOON - SECOND):
            assert await store.lanes.take("relay-b", limit=9, lease=LEASE, lost=lost, now=now) == []
        assert len(await store.lanes.take("relay-b", limit=9, lease=LEASE, lost=lost, now=NOON + LEASE + SECOND)) == 9

    async def test_the_store_has_a_clock_of_its_own_for_leases(self, store: Store) -> None:
        taken = await store.lanes.take("relay-a", limit=2, lease=MINUTE, lost=lost)
        assert len(taken) == 2
        lanes = {lane.lane: lane.epoch for lane in taken}
        free = len(await store.lanes.all()) - 2
        assert len(await store.lanes.take("relay-b", limit=10_000, lease=MINUTE, lost=lost)) == free
        assert await store.lanes.renew("relay-a", lanes, lease=MINUTE) == frozenset(lanes)

    # ── what a dead relay had in flight ──

    async def test_what_was_in_flight_gets_an_attempt_and_a_wait(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        await (await a_relay(store, "relay-a")).claim()
        taken = NOON + 2 * LEASE
        heir = await a_relay(store, "relay-b", now=taken)
        (record,) = await store.ops.find(Query())
        assert (record.attempts, record.status, record.last_error_code) == (1, "failed", "LEASE_LOST")
        assert await heir.seqs(now=taken + 29 * SECOND) == []
        assert await heir.seqs(now=taken + 31 * SECOND) == [seq]

    async def lose(self, store: Store, times: int, *, alone: bool = False) -> tuple[Relay, datetime]:
        """Claim all that may go, and die with it, so many times; the next relay, and a moment at which every wait is over."""
        now = NOON
        for number in range(times):
            relay = await a_relay(store, f"relay-{number}", now=now)
            lanes = relay.lanes
            assert await store.outbox.claim(relay.owner, lanes, limit=100, alone=alone, now=now + 40 * SECOND)
            now += 2 * LEASE
        heir = await a_relay(store, "heir", now=now)
        later = now + 40 * SECOND
        await store.lanes.renew("heir", heir.lanes, lease=LEASE, now=later)
        return heir, later

    async def test_what_was_lost_with_its_relay_too_often_is_buried(self, store: Store) -> None:
        await put(store, "a")
        await self.lose(store, 3, alone=True)
        (record,) = await store.ops.find(Query())
        assert (record.status, record.last_error_code, record.attempts) == ("dead", "CRASH_LOOP", 3)

    async def test_who_is_lost_in_company_is_never_buried_for_it(self, store: Store) -> None:
        """Its last attempt is kept for a try of its own."""
        (seq,) = await put(store, "a")
        heir, later = await self.lose(store, 5)
        (record,) = await store.ops.find(Query())
        assert (record.status, record.last_error_code, record.attempts) == ("failed", "LEASE_LOST", 2)
        assert await heir.seqs(now=later) == [seq]

    async def test_who_was_alone_by_chance_is_not_buried_for_it(self, store: Store) -> None:
        """Only who was lost twice before, whoever else was there."""
        await put(store, "a")
        relay = await a_relay(store, "relay-a")
        for _ in range(2):
            await relay.settle(await relay.claim(), Retry(timedelta(0), "TIMEOUT"))
        assert await store.outbox.claim("relay-a", relay.lanes, limit=1, alone=True, now=NOON)
        await a_relay(store, "relay-b", now=NOON + 2 * LEASE)
        (record,) = await store.ops.find(Query())
        assert (record.status, record.attempts) == ("failed", 2)

    async def test_what_was_lost_once_with_its_relay_travels_together(self, store: Store) -> None:
        written = await put(store, "a", "a", "a")
        heir, later = await self.lose(store, 1)
        (claim,) = await heir.claim(now=later)
        assert (claim.lost, claim.solo, seqs([claim])) == (1, False, written)

    async def test_what_was_lost_twice_with_its_relay_travels_alone(self, store: Store) -> None:
        written = await put(store, "a", "a", "a")
        heir, later = await self.lose(store, 2)
        came = []
        for _ in written:
            (claim,) = await heir.claim(now=later)
            assert (claim.lost, claim.solo) == (2, True)
            assert len(claim.messages) == 1
            came += seqs([claim])
            await heir.settle([claim], now=later)
        assert came == written

    async def test_one_that_was_lost_is_still_a_suspect_when_it_was_handed_back(self, store: Store) -> None:
        await store.outbox.put([a_message(key=None)])
        heir, later = await self.lose(store, 1)
        for _ in range(2):
            (claim,) = await heir.claim(now=later)
            assert claim.lost == 1
            await heir.settle([claim], Unsent(), now=later)

    async def test_an_innocent_does_not_travel_with_what_was_lost(self, store: Store) -> None:
        (lost_one,) = await put(store, "a")
        heir, later = await self.lose(store, 1)
        (innocent,) = await put(store, "a")
        (claim,) = await heir.claim(now=later)
        assert (claim.lost, seqs([claim])) == (1, [lost_one])
        await heir.settle([claim], now=later)
        (claim,) = await heir.claim(now=later)
        assert (claim.lost, seqs([claim])) == (0, [innocent])

    async def test_a_relay_that_lost_its_lane_changes_nothing(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        zombie = await a_relay(store, "relay-a")
        claims = await zombie.claim()
        await a_relay(store, "relay-b", now=NOON + 2 * LEASE)
        assert await zombie.settle(claims, now=NOON + 2 * LEASE) == "lost"
        assert await statuses(store, seq) == ["failed"]
        (record,) = await store.ops.find(Query())
        assert record.attempts == 1

    async def test_a_stale_batch_of_the_same_owner_changes_nothing(self, store: Store) -> None:
        (seq,) = await put(store, "a")
        relay = await a_relay(store, "relay-a")
        stale = await relay.claim()
        await relay.take(now=NOON + 2 * LEASE)
        assert await relay.settle(stale, now=NOON + 2 * LEASE) == "lost"
        assert await statuses(store, seq) == ["failed"]

    # ── who is alive ──

    async def test_a_relay_is_known_from_joining_to_leaving(self, store: Store) -> None:
        info = RelayInfo(owner="relay-a", name="a", host="here", pid=7, version="1", process="boot pid:[1] 9")
        await store.lanes.join(info, now=NOON)
        await store.lanes.join(info, now=NOON + SECOND)
        (seen,) = await store.lanes.relays()
        assert (seen.owner, seen.name, seen.host, seen.pid, seen.version) == ("relay-a", "a", "here", 7, "1")
        assert seen.process == "boot pid:[1] 9"
        assert seen.seen_at == NOON + SECOND
        await store.lanes.leave("relay-a")
        assert list(await store.lanes.relays()) == []

    async def test_the_store_has_a_clock_of_its_own_for_heartbeats(self, store: Store) -> None:
        await store.lanes.join(RelayInfo(owner="relay-a", name="a"))
        (seen,) = await store.lanes.relays()
        assert seen.seen_at is not None
