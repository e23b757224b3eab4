"""What may be committed, and what comes next: decided without a broker."""

from __future__ import annotations

import random

from postroom.contracts.transport import Delivery
from postroom.message import Message
from postroom.transports.kafka.decoding import Read
from postroom.transports.kafka.offsets import WAITING_BYTES, WAITING_MIN, Done, FetchedRecords

ORDERS = ("orders", 0)
OTHER = ("orders", 1)


def records(*, prefetch: int = 100) -> FetchedRecords:
    made = FetchedRecords(prefetch)
    made.gain([ORDERS, OTHER])
    return made


def fetch(into: FetchedRecords, *offsets: int, key: str | None = "a", partition: int = 0, body: bytes = b"1") -> None:
    for offset in offsets:
        read = Read(Message("order.paid", key=key, body=body), "shop")
        into.add("orders", partition, offset, read)


def offsets(deliveries: list[Delivery]) -> list[int]:
    return [delivery.token.receipt.offset for delivery in deliveries]


def test_only_the_first_ones_that_are_all_done_are_committed() -> None:
    ours = records()
    fetch(ours, 5, 6, 7, 8)
    five, six, seven, eight = ours.give(10, 0)
    ours.settle([six])
    ours.settle([eight])
    assert ours.untold() == [Done("orders", 0, 5)]
    ours.settle([five])
    assert ours.untold() == [Done("orders", 0, 7)]
    ours.settle([seven])
    assert ours.untold() == [Done("orders", 0, 9)]
    assert ours.untold() == []


def test_offsets_that_are_missing_in_the_log_hold_nothing_up() -> None:
    ours = records()
    fetch(ours, 3, 9, 40)
    first, second, third = ours.give(10, 0)
    ours.settle([first])
    assert ours.untold() == [Done("orders", 0, 9)]
    ours.settle([third])
    ours.settle([second])
    assert ours.untold() == [Done("orders", 0, 41)]


def test_a_commit_that_failed_is_told_again() -> None:
    ours = records()
    fetch(ours, 0)
    ours.settle(ours.give(1, 0))
    assert ours.untold() == [Done("orders", 0, 1)]
    ours.not_told([ORDERS])
    assert ours.untold() == [Done("orders", 0, 1)]


def test_what_is_taken_away_says_how_far_it_was_and_is_lost() -> None:
    ours = records()
    fetch(ours, 0, 1, 2)
    first, second = ours.give(2, 0)
    ours.settle([first])
    assert ours.lose([ORDERS]) == [Done("orders", 0, 1)]
    assert ours.is_lost(second)
    assert ours.give(10, 0) == [], "what was fetched ahead went with it"
    ours.settle([second])
    ours.refuse(second, 0)
    assert ours.untold() == []
    assert ours.give(10, 0) == []


def test_an_acknowledgement_from_before_a_partition_came_back_counts_for_nothing() -> None:
    ours = records()
    fetch(ours, 0, 1)
    old = ours.give(2, 0)
    ours.lose([ORDERS])
    ours.gain([ORDERS])
    fetch(ours, 0, 1)
    for delivery in old:
        ours.settle([delivery])
    assert ours.untold() == [Done("orders", 0, 0)]
    assert offsets(ours.give(2, 0)) == [0, 1]


def test_what_others_have_is_not_touched_when_a_partition_goes() -> None:
    ours = records(prefetch=2)
    fetch(ours, 0)
    fetch(ours, 7, 8, partition=1)
    assert offsets(ours.give(2, 0)) == [0, 7]
    ours.lose([ORDERS])
    assert offsets(ours.give(2, 0)) == [8], "the lost one takes no place in the prefetch"


def test_a_refused_message_stops_its_key_and_no_other() -> None:
    ours = records()
    fetch(ours, 0, 1)
    fetch(ours, 2, key="b")
    fetch(ours, 3, key=None)
    (first,) = ours.give(1, 0)
    ours.refuse(first, due=10)
    assert offsets(ours.give(10, now=5)) == [2, 3]
    assert ours.next_due(now=5) == 10
    again = ours.give(10, now=10)
    assert offsets(again) == [0, 1]
    assert [delivery.redelivered for delivery in again] == [1, 0]


def test_two_refused_of_one_key_come_back_in_order_whatever_their_delays() -> None:
    ours = records()
    fetch(ours, 0, 1, 2)
    first, second, third = ours.give(3, 0)
    ours.refuse(third, due=0)
    ours.refuse(second, due=1)
    ours.refuse(first, due=5)
    assert ours.give(10, now=4) == []
    assert offsets(ours.give(10, now=5)) == [0, 1, 2]


def test_the_same_key_in_another_partition_is_another_key() -> None:
    ours = records()
    fetch(ours, 0)
    (first,) = ours.give(1, 0)
    ours.refuse(first, due=10)
    fetch(ours, 0, partition=1)
    assert [delivery.token.receipt.partition.number for delivery in ours.give(10, 0)] == [1]


def test_a_refused_message_has_one_delivery_at_a_time() -> None:
    ours = records()
    fetch(ours, 0)
    (old,) = ours.give(1, 0)
    ours.refuse(old, due=0)
    (new,) = ours.give(1, 0)
    assert ours.is_lost(old)
    ours.settle([old])
    assert not ours.is_lost(new)
    assert ours.untold() == [Done("orders", 0, 0)]


def test_a_topic_made_anew_begins_anew() -> None:
    ours = records()
    fetch(ours, 40, 41)
    old = ours.give(1, 0)[0]
    fetch(ours, 0)
    assert ours.is_lost(old)
    ours.settle([old])
    assert ours.untold() == [Done("orders", 0, 0)]
    assert offsets(ours.give(10, 0)) == [0]


def test_a_record_of_a_partition_that_is_not_ours_is_nothing() -> None:
    ours = records()
    fetch(ours, 0, partition=7)
    assert ours.give(10, 0) == []


def test_there_are_too_many_by_number_or_by_size_and_have_room_again_at_half() -> None:
    ours = records(prefetch=WAITING_MIN)
    fetch(ours, *range(WAITING_MIN - 1))
    assert not ours.is_full()
    fetch(ours, WAITING_MIN)
    assert ours.is_full()
    ours.give(WAITING_MIN // 2 - 1, 0)
    assert not ours.has_room()
    ours.give(1, 0)
    assert ours.has_room()
    big = records()
    fetch(big, 0, body=bytes(WAITING_BYTES))
    assert big.is_full()
    (taken,) = big.give(1, 0)
    assert big.has_room()
    big.refuse(taken, 0)
    assert big.is_full()
    big.lose([ORDERS])
    assert big.has_room()


def test_whatever_happens_nothing_undone_is_committed_and_keys_keep_their_order() -> None:
    """Many random lives of one partition, against a plain list of what was done."""
    for seed in range(60):
        chance = random.Random(seed)
        ours, now, done = records(prefetch=chance.randint(1, 9)), 0.0, set[int]()
        fetched, in_hand, seen = 0, list[Delivery](), dict[str, list[int]]()
        while len(done) < 60:
            now += 1
            if fetched < 60:
                fetch(ours, fetched, key=chance.choice("abc"))
                fetched += 1
            for delivery in ours.give(chance.randint(1, 5), now):
                in_hand.append(delivery)
                seen.setdefault(str(delivery.message.key), []).append(delivery.token.receipt.offset)
            chance.shuffle(in_hand)
            for delivery in in_hand[: chance.randint(0, 3)]:
                in_hand.remove(delivery)
                if chance.random() < 0.3:
                    ours.refuse(delivery, now + chance.randint(0, 4))
                else:
                    ours.settle([delivery])
                    done.add(delivery.token.receipt.offset)
            for told in ours.untold():
                assert set(range(told.offset)) <= done
        for order in seen.values():
            first = list(dict.fromkeys(order))
            assert first == sorted(first)
        ours.not_told([ORDERS])
        assert ours.untold() == [Done("orders", 0, 60)]
