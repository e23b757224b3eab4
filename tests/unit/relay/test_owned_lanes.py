"""The lanes a relay holds, and until when. Time is an argument."""

from __future__ import annotations

from typing import Any

from postroom.contracts.lanes import Lane
from postroom.contracts.outbox import Claim
from postroom.relay.owned_lanes import REST_SECONDS, OwnedLanes, fair_share


def held(*lanes: int, deadline: float = 60, epoch: int = 1) -> OwnedLanes:
    owned_lanes = OwnedLanes()
    owned_lanes.add([Lane(lane, epoch, "me", None) for lane in lanes], deadline)
    return owned_lanes


def found(
    owned_lanes: OwnedLanes,
    lanes: dict[int, int],
    counts: dict[int, int],
    *,
    limit: int,
    emptied: int | None = None,
    **times: float,
) -> None:
    """A claim from these lanes found so many in each."""
    message: Any = None  # only their number matters here
    claims = [Claim(n, n, 1, "me", False, [message] * count, emptied=n == emptied) for n, count in counts.items()]
    owned_lanes.claimed(lanes, claims, limit, times.get("begin", 0), times.get("now", 0))


def in_flight(owned_lanes: OwnedLanes, lanes: dict[int, int]) -> None:
    found(owned_lanes, lanes, dict.fromkeys(lanes, 1), limit=100)


def test_a_lane_is_idle_until_it_is_busy() -> None:
    owned_lanes = held(1, 2)
    in_flight(owned_lanes, {1: 1})
    assert owned_lanes.idle(now=0, needed=5) == {2: 1}
    owned_lanes.settled({1: 1})
    assert owned_lanes.idle(now=0, needed=5) == {1: 1, 2: 1}


def test_no_send_starts_that_could_outlast_the_lease() -> None:
    owned_lanes = held(1, deadline=60)
    assert owned_lanes.may_send(1, 1, now=54, needed=5)
    assert not owned_lanes.may_send(1, 1, now=55, needed=5)
    assert owned_lanes.idle(now=55, needed=5) == {}


def test_a_batch_of_an_older_epoch_may_not_be_sent() -> None:
    owned_lanes = held(1, epoch=1)
    owned_lanes.add([Lane(1, 2, "me", None)], 60)
    assert not owned_lanes.may_send(1, 1, now=0, needed=5)
    assert owned_lanes.may_send(1, 2, now=0, needed=5)


def test_an_older_batch_does_not_free_a_lane_taken_anew() -> None:
    owned_lanes = held(1, epoch=2)
    in_flight(owned_lanes, {1: 2})
    owned_lanes.settled({1: 1})
    assert owned_lanes.idle(now=0, needed=5) == {}


def test_a_lane_past_its_deadline_is_given_up_for_good() -> None:
    owned_lanes = held(1, 2, deadline=60)
    owned_lanes.renewed({1}, deadline=120, asked=[1, 2], now=0)
    assert owned_lanes.epochs == {1: 1}
    assert owned_lanes.expire(now=120) == [1]
    owned_lanes.renewed({1}, deadline=180, asked=[1], now=0)
    assert owned_lanes.epochs == {}, "a late answer brings nothing back"


def test_what_is_above_the_fair_share_leaves_as_soon_as_it_is_idle() -> None:
    owned_lanes = held(1, 2, 3, 4)
    in_flight(owned_lanes, {1: 1, 2: 1, 3: 1})
    assert owned_lanes.to_hand_over(2) == {4: 1}
    assert owned_lanes.idle(now=0, needed=5) == {}
    owned_lanes.drop([4])
    owned_lanes.settled({1: 1})
    leaving = owned_lanes.to_hand_over(2)
    assert leaving == {1: 1}


def test_every_lane_belongs_to_somebody() -> None:
    for relays in range(1, 70):
        assert fair_share(64, relays) * relays >= 64


def test_lanes_that_are_full_are_claimed_from_by_themselves_and_the_others_have_their_turn() -> None:
    owned_lanes = held(*range(16))
    lanes = owned_lanes.idle(now=0, needed=5)
    found(owned_lanes, lanes, {3: 10, 7: 10, 9: 2}, limit=160)
    owned_lanes.settled(lanes)
    parts = [set(owned_lanes.part_of(lanes, room=1)) for _ in range(8)]
    assert parts.count({3, 7}) == 6
    assert parts.count(set(range(16)) - {3, 7}) == 2


def test_the_lanes_that_waited_longest_come_first_and_all_of_them_in_turn() -> None:
    owned_lanes = held(*range(8))
    lanes = owned_lanes.idle(now=0, needed=5)
    parts = [set(owned_lanes.part_of(lanes, room=4)) for _ in range(4)]
    assert [len(part) for part in parts] == [2, 2, 2, 2]
    assert set().union(*parts) == set(range(8))


def test_a_lane_that_was_emptied_is_full_no_more() -> None:
    owned_lanes = held(1, 2)
    lanes = owned_lanes.idle(now=0, needed=5)
    found(owned_lanes, lanes, {1: 10}, limit=20)
    owned_lanes.settled(lanes)
    found(owned_lanes, {1: 1}, {}, limit=10)
    assert owned_lanes.part_of(lanes, room=1) == lanes


def test_a_lane_that_was_lost_since_it_was_idle_is_no_part_of_a_claim() -> None:
    """Between the look at what is idle and the claim there is a question to the database, and a lease may run out."""
    owned_lanes = held(1, 2, 3)
    idle = owned_lanes.idle(now=0, needed=5)
    owned_lanes.drop([1])
    owned_lanes.add([Lane(2, 2, "me", None)], 60)
    assert owned_lanes.part_of(idle, room=1) == {3: 1}


def test_an_empty_lane_rests_only_while_others_are_full() -> None:
    owned_lanes = held(1, 2)
    lanes = owned_lanes.idle(now=0, needed=5)
    found(owned_lanes, lanes, {1: 10}, limit=20)
    assert owned_lanes.rested({2: 1}, now=0) == {}
    assert owned_lanes.next_look(now=0) == REST_SECONDS
    assert owned_lanes.rested({2: 1}, now=REST_SECONDS) == {2: 1}
    found(owned_lanes, {1: 1}, {}, limit=20)
    assert owned_lanes.rested(lanes, now=0) == lanes


def test_a_look_that_took_long_is_not_repeated_soon() -> None:
    owned_lanes = held(1, 2)
    found(owned_lanes, {1: 1}, {1: 20}, limit=20)
    found(owned_lanes, {2: 1}, {}, limit=20, begin=10, now=11)
    assert owned_lanes.rested({2: 1}, now=12.9) == {}
    assert owned_lanes.rested({2: 1}, now=13) == {2: 1}


def test_a_lane_of_which_the_store_saw_the_end_rests_as_an_empty_one_does() -> None:
    owned_lanes = held(1, 2)
    found(owned_lanes, {1: 1, 2: 1}, {1: 10, 2: 10}, limit=20, emptied=2)
    owned_lanes.settled({1: 1, 2: 1})
    assert set(owned_lanes.rested({1: 1, 2: 1}, now=0)) == {1}


def test_a_lane_cut_short_by_the_claims_limit_counts_as_full() -> None:
    owned_lanes = held(1, 2)
    found(owned_lanes, {1: 1, 2: 1}, {1: 3, 2: 17}, limit=20, emptied=2)
    assert owned_lanes.is_full


def test_a_renewal_answered_past_the_deadline_prolongs_nothing() -> None:
    owned_lanes = held(1, 2, deadline=60)
    owned_lanes.renewed({2}, deadline=120, asked=[2], now=59)
    assert owned_lanes.renewed({1, 2}, deadline=130, asked=[1, 2], now=61) == [1]
    assert owned_lanes.epochs == {2: 1}
